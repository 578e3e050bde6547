//! The machine and the programs of the measurements.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use longhaul_lab::scenario::HostFacts;
use serde::Serialize;

/// The machine, and the programs besides longhaul.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Machine {
    #[serde(flatten)]
    host: HostFacts,
    file_system: String,
    /// Names with versions.
    programs: Vec<String>,
}

impl Machine {
    /// Describes this machine and the file system of `dir`.
    ///
    /// # Errors
    /// Names a missing program.
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

    /// Formats the description as a sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("{}, {}; {}.", self.host.sentence(), self.file_system, self.programs.join(", "))
    }
}

/// Returns name and version, the first two words of the program's output.
fn version(mut program: Command, flag: &str) -> Result<String> {
    program.arg(flag);
    let output_text = answer(program)?;
    let words = output_text.trim_start_matches("nginx version: ").split_whitespace();
    let words: Vec<_> = words.filter(|word| *word != "version").take(2).collect();
    Ok(words.join(" "))
}

fn answer(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("cannot run {program}; `make bench` installs what is needed, or scripts/setup.sh test")
    })?;
    // nginx prints its version to standard error.
    let output_text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&output_text).into_owned())
}
