//! `--fix`: loads the kernel modules and writes the kernel settings that findings ask for.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use longhaul_core::host_check::{Diagnosis, Fix, Severity};
use serde_json::{Value, json};

use super::undo_file::{self, SavedModule, SavedSetting};
use super::{Failure, exit_code, kernel_module, kernel_setting};
use crate::{exit, say};

/// What became of modules and settings.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    modules: Vec<Module>,
    changes: Vec<Change>,
    is_declined: bool,
}

/// A module that is to be loaded before settings are written, and why it was not, where it was not.
#[derive(Debug)]
struct Module {
    name: String,
    refused: Option<String>,
    /// Whether it was refused before anything was loaded.
    is_skipped: bool,
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

/// Shows the changes, asks, saves the old values, loads the modules and writes the new values.
pub(super) fn run(diagnosis: &Diagnosis, yes: bool, json: bool) -> Result<Fixed, Failure> {
    let changes = diagnosis.changes().into_iter().map(|change| plan(&change.name, &change.value)).collect();
    let mut fixed = Fixed { modules: Vec::new(), changes, is_declined: false };
    fixed.modules = modules_for(diagnosis.fixes(), &fixed.changes);
    // With --json stdout holds the object alone.
    let show = |line: String| if json { say::line(line) } else { say::output(line) };
    show(if fixed.changes.is_empty() {
        "\nNo kernel setting is to be changed.".to_owned()
    } else {
        "\nChanges:".to_owned()
    });
    for module in &fixed.modules {
        show(match &module.refused {
            None => format!("  modprobe {}", module.name),
            Some(reason) => format!("  modprobe {}: skipped: {reason}", module.name),
        });
    }
    for change in &fixed.changes {
        show(match &change.refused {
            None => format!("  {}: {} -> {}", change.name, change.old, change.new),
            Some(reason) => format!("  {}: skipped: {reason}", change.name),
        });
    }
    let (loadable, writable) = fixed.counts();
    if writable == 0 {
        return Ok(fixed);
    }
    if !yes && !is_agreed(loadable, writable) {
        show("Nothing was changed.".to_owned());
        return Ok(Fixed { is_declined: true, ..Fixed::default() });
    }
    let file = undo_file::path()?;
    apply(&mut fixed, &file)?;
    for module in &fixed.modules {
        if let (Some(reason), false) = (&module.refused, module.is_skipped) {
            show(format!("  {}: not loaded: {reason}", module.name));
        }
    }
    for change in &fixed.changes {
        if let (Some(reason), false) = (&change.refused, change.is_skipped) {
            show(format!("  {}: not written: {reason}", change.name));
        }
    }
    let (loaded, written) = fixed.counts();
    let modules = if loaded == 0 { String::new() } else { format!(" (modules loaded: {loaded})") };
    show(format!(
        "{written} settings were written{modules}, until the next start; longhaul doctor --undo restores the old values from {}",
        file.display()
    ));
    Ok(fixed)
}

/// Saves the old values, loads the modules, writes the new values, and takes back what the kernel does not accept.
///
/// All is saved before the first change: what is changed can be undone even if this process is killed meanwhile.
fn apply(fixed: &mut Fixed, file: &Path) -> Result<(), Failure> {
    let before = undo_file::read(file)?;
    let (namespace, boot) = (undo_file::namespace(), undo_file::boot());
    let save = |fixed: &Fixed| {
        let mut saved = before.clone();
        for module in fixed.modules.iter().filter(|module| module.refused.is_none()) {
            let module = SavedModule { boot: boot.clone(), name: module.name.clone() };
            if !saved.modules.contains(&module) {
                saved.modules.push(module);
            }
        }
        for change in fixed.changes.iter().filter(|change| change.refused.is_none()) {
            undo_file::add(&mut saved.settings, change.saved(&namespace));
        }
        undo_file::write(file, &saved)
    };
    save(fixed)?;
    for module in fixed.modules.iter_mut().filter(|module| module.refused.is_none()) {
        module.refused = kernel_module::load(&module.name).err().map(|error| error.to_string());
    }
    for change in fixed.changes.iter_mut().filter(|change| change.refused.is_none()) {
        if let Err(error) = kernel_setting::write(&change.name, &change.new) {
            // A value that the kernel took in part is no value of either. Where the old one is refused as well, it stays saved.
            if kernel_setting::write(&change.name, &change.old).is_ok() {
                change.refused = Some(error.to_string());
            }
        }
    }
    save(fixed)
}

/// Returns the modules that fixes need and that are not loaded, each once: none for settings that cannot be written.
fn modules_for<'a>(fixes: impl Iterator<Item = &'a Fix>, changes: &[Change]) -> Vec<Module> {
    let is_written =
        |name: &str| changes.iter().any(|change| change.name == name && change.refused.is_none());
    let mut modules: Vec<Module> = Vec::new();
    for fix in fixes {
        let is_of_use = fix.sysctls.iter().any(|setting| is_written(&setting.name));
        for name in fix.modules.iter().flat_map(|modules| &modules.lines) {
            if kernel_module::is_loaded(name) {
                continue;
            }
            let refused = if is_of_use {
                kernel_module::check_loadable().err().map(|error| format!("{error}: needs root"))
            } else {
                Some("the setting that needs it cannot be written".to_owned())
            };
            match modules.iter_mut().find(|module| module.name == *name) {
                Some(known) if refused.is_none() => (known.refused, known.is_skipped) = (None, false),
                Some(_) => {}
                None => {
                    let is_skipped = refused.is_some();
                    modules.push(Module { name: name.clone(), refused, is_skipped });
                }
            }
        }
    }
    modules
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
fn is_agreed(modules: usize, settings: usize) -> bool {
    let mut stderr = io::stderr();
    let what = if modules == 0 { "Write".to_owned() } else { format!("Load modules ({modules}) and write") };
    let _ = write!(stderr, "{what} {settings} settings? [y/N] ").and_then(|()| stderr.flush());
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
    /// Returns how many modules and settings were not refused.
    fn counts(&self) -> (usize, usize) {
        (
            self.modules.iter().filter(|module| module.refused.is_none()).count(),
            self.changes.iter().filter(|change| change.refused.is_none()).count(),
        )
    }

    /// Returns the exit code: 77 where a module or a setting could not be changed, for whatever reason; that of the findings where the
    /// user has declined.
    pub(super) fn exit_code(&self, worst: Severity) -> ExitCode {
        if self.is_declined {
            exit_code(worst)
        } else if self.counts() != (self.modules.len(), self.changes.len()) {
            exit::NO_PERMISSION.into()
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Returns the modules as JSON.
    pub(super) fn modules_as_json(&self) -> Value {
        let module = |module: &Module| json!({ "name": module.name, "loaded": module.refused.is_none(), "reason": module.refused });
        self.modules.iter().map(module).collect()
    }

    /// Returns the changes of settings as JSON.
    pub(super) fn changes_as_json(&self) -> Value {
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

    fn setting(name: &str, refused: Option<&str>) -> Change {
        Change {
            name: name.to_owned(),
            old: "0".to_owned(),
            new: "1".to_owned(),
            refused: refused.map(str::to_owned),
            is_skipped: refused.is_some(),
        }
    }

    #[test]
    fn modules_are_loaded_once_and_for_settings_that_can_be_written() {
        let fix = |name: &str| Fix::sysctl(name, "1").after_module("tcp_none".to_owned());
        let fixes = [fix("net.a"), fix("net.b"), Fix::sysctl("net.c", "1")];
        let refused = |a, b| {
            let modules = modules_for(fixes.iter(), &[setting("net.a", a), setting("net.b", b)]);
            assert_eq!(modules.len(), 1, "{modules:?}");
            modules.into_iter().next().unwrap().refused
        };
        let root = kernel_module::check_loadable().err().map(|error| format!("{error}: needs root"));
        for (a, b) in [(None, None), (None, Some("no")), (Some("no"), None)] {
            assert_eq!(refused(a, b), root);
        }
        assert_eq!(refused(Some("no"), Some("no")).unwrap(), "the setting that needs it cannot be written");
    }

    /// A module that is not there: what needs it is tried all the same, and nothing is left to undo of it.
    #[test]
    fn module_that_cannot_be_loaded_is_refused_and_not_saved() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("doctor-undo.json");
        let modules = vec![Module { name: "tcp_none".to_owned(), refused: None, is_skipped: false }];
        let mut fixed = Fixed { modules, changes: Vec::new(), is_declined: false };
        apply(&mut fixed, &file).unwrap();
        assert!(fixed.modules[0].refused.is_some() && !file.exists());
        assert_eq!(fixed.counts(), (0, 0));
        assert_eq!(
            format!("{:?}", fixed.exit_code(Severity::Ok)),
            format!("{:?}", ExitCode::from(exit::NO_PERMISSION))
        );
        assert_eq!(fixed.modules_as_json()[0]["loaded"], false);
    }

    #[test]
    fn refused_setting_is_an_exit_code_and_a_declined_fix_that_of_the_findings() {
        let change = |refused| setting("net.ipv4.tcp_sack", refused);
        let code = |changes, is_declined| {
            let fixed = Fixed { changes, is_declined, ..Fixed::default() };
            format!("{:?}", fixed.exit_code(Severity::Problem))
        };
        let expected = |code: exit::Code| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(vec![change(None)], false), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(code(vec![change(None), change(Some("no"))], false), expected(exit::NO_PERMISSION));
        assert_eq!(code(Vec::new(), true), expected(exit::FOUND));
    }
}
