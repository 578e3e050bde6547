//! `--fix`: writes the kernel settings that findings ask for.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use longhaul_core::host_check::{Diagnosis, Severity};
use serde_json::{Value, json};

use super::undo_file::{self, SavedSetting};
use super::{Failure, exit_code, kernel_setting};
use crate::{exit, say};

/// What became of the settings.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    changes: Vec<Change>,
    is_declined: bool,
}

/// One setting, and why it was not written, where it was not.
#[derive(Debug)]
struct Change {
    name: String,
    old: String,
    new: String,
    refused: Option<String>,
    /// Whether it was refused before anything was written.
    is_skipped: bool,
}

/// Shows the changes, asks, saves the old values and writes the new ones.
pub(super) fn run(diagnosis: &Diagnosis, yes: bool, json: bool) -> Result<Fixed, Failure> {
    let mut changes: Vec<Change> =
        diagnosis.changes().into_iter().map(|change| plan(&change.name, &change.value)).collect();
    // With --json stdout holds the object alone.
    let show = |line: String| if json { say::line(line) } else { say::output(line) };
    show(if changes.is_empty() {
        "\nNo kernel setting is to be changed.".to_owned()
    } else {
        "\nChanges:".to_owned()
    });
    for change in &changes {
        show(match &change.refused {
            None => format!("  {}: {} -> {}", change.name, change.old, change.new),
            Some(reason) => format!("  {}: skipped: {reason}", change.name),
        });
    }
    let writable = changes.iter().filter(|change| change.refused.is_none()).count();
    if writable == 0 {
        return Ok(Fixed { changes, is_declined: false });
    }
    if !yes && !is_agreed(writable) {
        show("Nothing was changed.".to_owned());
        return Ok(Fixed { changes: Vec::new(), is_declined: true });
    }
    let file = undo_file::path()?;
    apply(&mut changes, &file)?;
    for change in &changes {
        if let (Some(reason), false) = (&change.refused, change.is_skipped) {
            show(format!("  {}: not written: {reason}", change.name));
        }
    }
    let written = changes.iter().filter(|change| change.refused.is_none()).count();
    show(format!(
        "{written} settings were written, until the next start; longhaul doctor --undo restores the old values from {}",
        file.display()
    ));
    Ok(Fixed { changes, is_declined: false })
}

/// Saves the old values, writes the new ones, and takes back what the kernel does not accept.
///
/// The values are saved before the first write: what is written can be undone even if this process is killed meanwhile.
fn apply(changes: &mut [Change], file: &Path) -> Result<(), Failure> {
    let before = undo_file::read(file)?;
    let namespace = undo_file::namespace();
    let save = |changes: &[Change]| {
        let mut saved = before.clone();
        for change in changes.iter().filter(|change| change.refused.is_none()) {
            undo_file::add(&mut saved, change.saved(&namespace));
        }
        undo_file::write(file, &saved)
    };
    save(changes)?;
    for change in changes.iter_mut().filter(|change| change.refused.is_none()) {
        if let Err(error) = kernel_setting::write(&change.name, &change.new) {
            // A value that the kernel took in part is no value of either. Where the old one is refused as well, it stays saved.
            if kernel_setting::write(&change.name, &change.old).is_ok() {
                change.refused = Some(error.to_string());
            }
        }
    }
    save(changes)
}

/// Reads the present value, and finds out whether it can be written.
fn plan(name: &str, value: &str) -> Change {
    let old = kernel_setting::read(name);
    let refused = match &old {
        Err(error) => Some(error.to_string()),
        Ok(_) => kernel_setting::check_writable(name).err().map(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("{error}: needs root, in the host's own network namespace")
            }
            _ => error.to_string(),
        }),
    };
    let (is_skipped, old) = (refused.is_some(), old.unwrap_or_default());
    Change { name: name.to_owned(), old, new: value.to_owned(), refused, is_skipped }
}

/// Asks on the terminal.
fn is_agreed(count: usize) -> bool {
    let mut stderr = io::stderr();
    let _ = write!(stderr, "Write {count} settings? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    // An end of input is a no.
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

impl Change {
    fn saved(&self, namespace: &str) -> SavedSetting {
        SavedSetting {
            namespace: namespace.to_owned(),
            name: self.name.clone(),
            old: self.old.clone(),
            new: kernel_setting::plain(&self.new),
            before: Some(self.old.clone()),
        }
    }
}

impl Fixed {
    /// Returns the exit code: 77 where a setting was refused, that of the findings where the user has declined.
    pub(super) fn exit_code(&self, worst: Severity) -> ExitCode {
        if self.is_declined {
            exit_code(worst)
        } else if self.changes.iter().any(|change| change.refused.is_some()) {
            exit::NO_PERMISSION.into()
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Returns the changes as JSON.
    pub(super) fn as_json(&self) -> Value {
        let change = |change: &Change| {
            json!({
                "name": change.name,
                "old": change.old,
                "new": change.new,
                "written": change.refused.is_none(),
                "reason": change.refused,
            })
        };
        self.changes.iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        assert!(is_yes("y\n") && is_yes(" YES\n"));
        for no in ["", "\n", "n\n", "yesterday\n", "yy\n"] {
            assert!(!is_yes(no), "{no}");
        }
    }

    #[test]
    fn setting_that_is_absent_is_skipped_with_the_reason() {
        let change = plan("net.ipv4.tcp_none", "1");
        assert!(change.refused.unwrap().contains("No such file"));
        assert!(plan("kernel.hostname", "x").refused.is_some());
    }

    #[test]
    fn refused_setting_is_an_exit_code_and_a_declined_fix_that_of_the_findings() {
        let change = |refused: Option<&str>| Change {
            name: "net.ipv4.tcp_sack".to_owned(),
            old: "0".to_owned(),
            new: "1".to_owned(),
            refused: refused.map(str::to_owned),
            is_skipped: refused.is_some(),
        };
        let code = |changes, is_declined| {
            format!("{:?}", Fixed { changes, is_declined }.exit_code(Severity::Problem))
        };
        let expected = |code: exit::Code| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(vec![change(None)], false), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(code(vec![change(None), change(Some("no"))], false), expected(exit::NO_PERMISSION));
        assert_eq!(code(Vec::new(), true), expected(exit::FOUND));
    }
}
