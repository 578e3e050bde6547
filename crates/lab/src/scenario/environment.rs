//! The environment variables of a scenario's commands.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::NO_CONFIG;
use crate::error::LabError;

use super::Scenario;
use super::plan::Execution;
use super::results_directory::ResultsDirectory;
use super::sweep::variable;

/// The environment variables that name a proxy.
const PROXIES: [&str; 6] =
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// Variables by name.
#[derive(Debug, Clone)]
pub(super) struct Environment(Vec<(String, OsString)>);

impl Environment {
    /// Creates the variables common to all commands of a scenario: `LAB_OUT`, `LAB_DIR`,
    /// [`NO_CONFIG`], and `PATH` starting with the directory of `program`, so that commands find
    /// this program by name.
    ///
    /// # Errors
    /// Fails if the scenario's directory does not exist.
    pub(super) fn new(
        scenario: &Scenario,
        output: &ResultsDirectory,
        program: &Path,
    ) -> Result<Self, LabError> {
        let directory = scenario.origin.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let directory = directory.canonicalize().map_err(LabError::read(directory))?;
        let mut variables = vec![
            ("LAB_OUT".to_owned(), output.directory().as_os_str().to_owned()),
            ("LAB_DIR".to_owned(), directory.into_os_string()),
            (NO_CONFIG.to_owned(), "1".into()),
        ];
        let before = env::var_os("PATH").unwrap_or_default();
        let own = program.parent().map(Path::to_owned).unwrap_or_default();
        let places = std::iter::once(own).chain(env::split_paths(&before)).collect::<Vec<PathBuf>>();
        // PATH cannot hold a directory with ':' in its name.
        if let Ok(path) = env::join_paths(places) {
            variables.push(("PATH".to_owned(), path));
        }
        Ok(Self(variables))
    }

    /// Adds the variables of an execution: `LAB_RUN`, `LAB_REPETITION`, `LAB_SEED` and the
    /// parameters.
    pub(super) fn of(&self, execution: &Execution<'_>) -> Self {
        let mut all = self.clone();
        all.0.extend([
            ("LAB_RUN".to_owned(), execution.run.name.clone().into()),
            ("LAB_REPETITION".to_owned(), execution.repetition.to_string().into()),
            ("LAB_SEED".to_owned(), execution.path.seed.to_string().into()),
        ]);
        all.0.extend(execution.parameters.iter().map(|(name, value)| (variable(name), (*value).into())));
        all
    }

    /// Adds `LAB_RECORD`: the path for a command's record.
    pub(super) fn with_record(&self, record: &Path) -> Self {
        let mut all = self.clone();
        all.0.push(("LAB_RECORD".to_owned(), record.as_os_str().to_owned()));
        all
    }

    /// Sets the variables of a command on an emulated host, which does not reach the proxies of
    /// this machine.
    pub(super) fn apply_on_host(&self, command: &mut Command) {
        for proxy in PROXIES {
            command.env_remove(proxy);
        }
        self.apply_to(command);
    }

    /// Sets the variables of a command.
    pub(super) fn apply_to(&self, command: &mut Command) {
        command.envs(self.0.iter().map(|(name, value)| (name, value)));
    }
}
