//! What the figures were measured on.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use longhaul_lab::scenario::HostFacts;
use serde::Serialize;

/// The machine, and the programs beside longhaul.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Machine {
    #[serde(flatten)]
    host: HostFacts,
    file_system: String,
    /// Each with its version.
    programs: Vec<String>,
}

impl Machine {
    /// Describes this machine and the file system that holds `dir`.
    ///
    /// # Errors
    /// Names the program that is missing.
    pub(crate) fn describe(dir: &Path) -> Result<Self> {
        let mut findmnt = Command::new("findmnt");
        findmnt.args(["-n", "-o", "FSTYPE", "-T"]).arg(dir);
        let nginx = version(Command::new(crate::nginx::find()?), "-v")?;
        let others =
            ["curl", "axel", "aria2c", "fio"].map(|program| version(Command::new(program), "--version"));
        Ok(Self {
            host: HostFacts::now(),
            file_system: answer(findmnt)?.trim().to_owned(),
            programs: std::iter::once(Ok(nginx)).chain(others).collect::<Result<_>>()?,
        })
    }

    /// Returns one sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("{}, {}; {}.", self.host.sentence(), self.file_system, self.programs.join(", "))
    }
}

/// Returns name and version, the first two words of what the program says.
fn version(mut program: Command, flag: &str) -> Result<String> {
    program.arg(flag);
    let told = answer(program)?;
    let words = told.trim_start_matches("nginx version: ").split_whitespace();
    let words: Vec<_> = words.filter(|word| *word != "version").take(2).collect();
    Ok(words.join(" "))
}

fn answer(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("cannot run {program}; `make bench` installs what is needed, or scripts/setup.sh test")
    })?;
    // nginx answers on its standard error.
    let told = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&told).into_owned())
}
