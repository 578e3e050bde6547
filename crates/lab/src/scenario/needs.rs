//! Checks that this machine has the programs that a scenario needs.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;

use longhaul_core::failure::FailureKind;
use rustix::fs::{Access, access};

use crate::error::LabError;

use super::Scenario;
use super::plan::Execution;

/// Directories of servers, which are not in the PATH of every user; the scenarios' tools look
/// there, too.
const SERVER_PROGRAMS: &str = "/usr/sbin:/sbin";

impl Scenario {
    /// Checks that the programs are installed that these executions need.
    ///
    /// # Errors
    /// Fails with the missing programs and their packages.
    pub fn check_needs(&self, executions: &[&Execution<'_>]) -> Result<(), LabError> {
        let needs: BTreeMap<_, _> =
            executions.iter().flat_map(|execution| &execution.run.needs).chain(&self.needs).collect();
        let missing: Vec<_> = needs.into_iter().filter(|(program, _)| !is_installed(program)).collect();
        if executions.is_empty() || missing.is_empty() {
            return Ok(());
        }
        let programs: Vec<_> = missing.iter().map(|(program, _)| program.as_str()).collect();
        let packages: BTreeSet<_> = missing.iter().map(|(_, package)| package.as_str()).collect();
        let packages: Vec<_> = packages.into_iter().collect();
        let (programs, packages) = (programs.join(", "), packages.join(" "));
        let message =
            format!("the scenario needs {programs}, missing on this machine: apt-get install {packages}");
        Err(LabError::failed(FailureKind::Host, message))
    }
}

/// Returns whether a program is executable in PATH, or at its path.
fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(env::split_paths(SERVER_PROGRAMS));
    let is_executable = |file: &Path| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    places.map(|place| place.join(program)).any(|file| is_executable(&file))
}
