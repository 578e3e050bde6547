//! `--fix`: loads the kernel modules and writes the settings that findings ask for; `--permanent`
//! makes them last.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::host_check::{Diagnosis, Fix, START_FILES, Severity};
use serde_json::Value;

use super::fix_step::{Change, FixStep};
use super::text::lasting_files;
use super::undo_file::{self, SavedLines, SavedModule, SavedSetting};
use super::{DoctorArgs, exit_code, kernel_module, start_file};
use crate::{exit, say, stdout};

/// What became of modules, settings, and the files that make them last.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    modules: Vec<FixStep<SavedModule>>,
    changes: Vec<FixStep<SavedSetting>>,
    files: Vec<FixStep<SavedLines>>,
    is_declined: bool,
}

/// Shows the changes, asks, saves the old values, loads the modules and writes the new values.
pub(super) fn run(diagnosis: &Diagnosis, args: &DoctorArgs) -> Result<Fixed, Failure> {
    let lasting: Vec<&Fix> = diagnosis.fixes().filter(|_| args.permanent).collect();
    let changes = diagnosis.changes().into_iter().map(FixStep::of).collect();
    let mut fixed = Fixed { changes, ..Fixed::default() };
    fixed.modules = modules_for(diagnosis.fixes(), &fixed.changes);
    fixed.files = fixed.lines_for(&lasting);
    let show = |line: String| if args.json { say::line(line) } else { stdout::line(line) };
    show(if fixed.changes.is_empty() {
        "\nNo setting is to be changed.".to_owned()
    } else {
        "\nChanges:".to_owned()
    });
    fixed.steps().map(FixStep::plan).for_each(show);
    if args.permanent && has_temporary(&fixed.changes)? {
        show("Settings of an earlier --fix end with the next start: run longhaul doctor --undo, then --fix --permanent".to_owned());
    }
    if open(&fixed.changes) == 0 {
        return Ok(fixed);
    }
    if !args.yes && !fixed.is_agreed() {
        show("Nothing was changed.".to_owned());
        return Ok(Fixed { is_declined: true, ..Fixed::default() });
    }
    let file = undo_file::path()?;
    apply(&mut fixed, &lasting, &file)?;
    fixed.steps().filter_map(FixStep::failure).for_each(show);
    let modules = match open(&fixed.modules) {
        0 => String::new(),
        loaded => format!(" (modules loaded: {loaded})"),
    };
    let held = lasting.iter().filter(|fix| fixed.is_applied(fix) && start_file::contain(fix));
    let until = match held.map(|fix| fix.changes.len()).sum::<usize>() {
        0 => "until the next start".to_owned(),
        held => format!("{held} of them last"),
    };
    show(format!(
        "{} settings were written{modules}, {until}; longhaul doctor --undo restores the old values from {}",
        open(&fixed.changes),
        file.display()
    ));
    Ok(fixed)
}

/// Says whether an earlier run without `--permanent` has changed settings that are not among the
/// changes.
fn has_temporary(changes: &[FixStep<SavedSetting>]) -> Result<bool, Failure> {
    let (saved, namespace) = (undo_file::read(&undo_file::path()?)?, undo_file::namespace());
    let is_changed = |name: &str| changes.iter().any(|change| change.what.name == name);
    let is_earlier = |saved: &SavedSetting| saved.namespace == namespace && !is_changed(&saved.name);
    Ok(saved.lines.is_empty() && saved.settings.iter().any(is_earlier))
}

/// Returns how many steps were not refused.
fn open<T: Change>(steps: &[FixStep<T>]) -> usize {
    steps.iter().filter(|step| step.is_open()).count()
}

/// Saves the old values, loads the modules, writes the new values, and adds the lines that make
/// those last.
///
/// All is saved before it is changed: what is changed can be undone even if this process is killed
/// meanwhile.
fn apply(fixed: &mut Fixed, lasting: &[&Fix], file: &Path) -> Result<(), Failure> {
    undo_file::create_directory(file)?;
    let _lock = undo_file::lock(file)?;
    let before = undo_file::read(file)?;
    let save = |fixed: &Fixed| {
        let mut saved = before.clone();
        for FixStep { what: module, .. } in fixed.modules.iter().filter(|module| module.is_open()) {
            if !saved.modules.contains(module) {
                saved.modules.push(module.clone());
            }
        }
        for change in fixed.changes.iter().filter(|change| change.is_to_be_saved()) {
            undo_file::add(&mut saved.settings, change.what.clone());
        }
        saved.lines.extend(fixed.files.iter().filter(|file| file.is_open()).map(|file| file.what.clone()));
        undo_file::write(file, &saved)
    };
    fixed.files.clear();
    save(fixed)?;
    fixed.modules.iter_mut().for_each(FixStep::attempt);
    fixed.changes.iter_mut().for_each(FixStep::attempt);
    fixed.files = fixed.lines_for(lasting);
    save(fixed)?;
    fixed.files.iter_mut().for_each(FixStep::attempt);
    save(fixed)
}

/// Returns the modules that fixes need and that are not loaded, each once: none for settings that
/// cannot be written.
fn modules_for<'a>(
    fixes: impl Iterator<Item = &'a Fix>,
    changes: &[FixStep<SavedSetting>],
) -> Vec<FixStep<SavedModule>> {
    let mut modules: Vec<FixStep<SavedModule>> = Vec::new();
    for fix in fixes {
        let is_of_use = fix.changes.iter().any(|change| is_open(changes, &change.name));
        for name in fix.modules.iter().flat_map(|modules| &modules.lines) {
            if kernel_module::is_loaded(name) {
                continue;
            }
            let refused = if is_of_use {
                kernel_module::check_loadable().err().map(|error| format!("{error}: needs root"))
            } else {
                Some("the setting that needs it cannot be written".to_owned())
            };
            let module = FixStep::new(SavedModule { name: name.clone() }, refused);
            match modules.iter_mut().find(|module| module.what.name == *name) {
                Some(known) if module.is_open() => *known = module,
                Some(_) => {}
                None => modules.push(module),
            }
        }
    }
    modules
}

/// Says whether a setting is among the changes, and not refused.
fn is_open(changes: &[FixStep<SavedSetting>], name: &str) -> bool {
    changes.iter().any(|change| change.what.name == name && change.is_open())
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

impl Fixed {
    /// Says whether a fix has settings, none of which is refused.
    fn is_applied(&self, fix: &Fix) -> bool {
        !fix.changes.is_empty() && fix.changes.iter().all(|change| is_open(&self.changes, &change.name))
    }

    /// Returns the lines that files lack to make the fixes last whose settings are not refused.
    /// Lines that would do nothing are refused.
    fn lines_for(&self, fixes: &[&Fix]) -> Vec<FixStep<SavedLines>> {
        let files = lasting_files(fixes.iter().copied().filter(|fix| self.is_applied(fix))).into_iter();
        let mut steps = Vec::new();
        for (file, mut lines) in files.filter(|(file, _)| START_FILES.contains(file)) {
            let mut push = |lines, refused| {
                steps.push(FixStep::new(SavedLines { file: file.to_owned(), lines }, refused));
            };
            lines.retain(|line| match start_file::why_ineffective(file, line) {
                None => true,
                Some(reason) => {
                    push(vec![(*line).to_owned()], Some(reason));
                    false
                }
            });
            match start_file::missing(file, &lines) {
                Ok(missing) if missing.is_empty() => {}
                Ok(missing) => {
                    push(missing, start_file::check_writable(file).err().map(|error| error.to_string()))
                }
                Err(error) => push(Vec::new(), Some(error.to_string())),
            }
        }
        steps
    }

    /// Returns the steps in the order in which they are done.
    fn steps(&self) -> impl Iterator<Item = &FixStep<dyn Change>> {
        let modules = self.modules.iter().map(|step| step as &FixStep<dyn Change>);
        modules
            .chain(self.changes.iter().map(|step| step as _))
            .chain(self.files.iter().map(|step| step as _))
    }

    /// Asks on the terminal.
    fn is_agreed(&self) -> bool {
        let mut stderr = io::stderr();
        let what = match open(&self.modules) {
            0 => "Write".to_owned(),
            modules => format!("Load modules ({modules}) and write"),
        };
        let settings = open(&self.changes);
        let _ = write!(stderr, "{what} {settings} settings? [y/N] ").and_then(|()| stderr.flush());
        let mut answer = String::new();
        // An end of input is a no.
        let read = io::stdin().read_line(&mut answer);
        read.is_ok() && is_yes(&answer)
    }

    /// Returns the exit code: 77 where a step could not be done, for whatever reason; that of the
    /// findings where the user has declined.
    pub(super) fn exit_code(&self, worst: Severity) -> ExitCode {
        if self.is_declined {
            exit_code(worst)
        } else if !self.steps().all(FixStep::is_open) {
            exit::of(FailureKind::Denied).into()
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Adds what became of modules, settings and files to an object.
    pub(super) fn add_to_json(&self, object: &mut Value) {
        object["changes"] = self.changes.iter().map(FixStep::as_json).collect();
        object["modules"] = self.modules.iter().map(FixStep::as_json).collect();
        object["files"] = self.files.iter().map(FixStep::as_json).collect();
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::host_check::SettingChange;
    use longhaul_sys::netns;

    use super::super::setting;
    use super::*;

    fn shown(code: impl Into<ExitCode>) -> String {
        format!("{:?}", code.into())
    }

    fn change_of(name: &str, refused: Option<&str>) -> FixStep<SavedSetting> {
        FixStep::new(undo_file::tests::saved(name, "0", "1"), refused.map(str::to_owned))
    }

    #[test]
    fn modules_are_loaded_for_settings_that_can_be_written_and_not_saved_if_that_fails() {
        let fix = |name: &str| Fix::sysctl(name, "1").after_module("tcp_none".to_owned());
        let fixes = [fix("net.a"), fix("net.b"), Fix::sysctl("net.c", "1")];
        let refused = |a, b| {
            let modules = modules_for(fixes.iter(), &[change_of("net.a", a), change_of("net.b", b)]);
            assert_eq!(modules.len(), 1, "{modules:?}");
            modules[0].as_json()["reason"].as_str().map(str::to_owned)
        };
        let root = kernel_module::check_loadable().err().map(|error| format!("{error}: needs root"));
        for (a, b) in [(None, None), (None, Some("no")), (Some("no"), None)] {
            assert_eq!(refused(a, b), root);
        }
        assert_eq!(refused(Some("no"), Some("no")).unwrap(), "the setting that needs it cannot be written");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("doctor-undo.json");
        let modules = vec![FixStep::new(SavedModule { name: "tcp_none".to_owned() }, None)];
        let mut fixed = Fixed { modules, ..Fixed::default() };
        apply(&mut fixed, &[], &file).unwrap();
        assert!(fixed.modules[0].failure().is_some() && !file.exists());
        assert_eq!(shown(fixed.exit_code(Severity::Ok)), shown(exit::of(FailureKind::Denied)));
        let mut object = Value::Object(serde_json::Map::new());
        fixed.add_to_json(&mut object);
        assert_eq!(object["modules"][0]["loaded"], false);
    }

    /// A file in place of the setting is longer than what is written to it: neither value is ever
    /// all of it.
    #[test]
    fn value_that_is_neither_taken_nor_taken_back_is_refused_and_saved_as_it_is() {
        let work = || {
            if let Err(why) = netns::enter_new_network().and_then(|_| netns::enter_new_mounts()) {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
                return println!("skipped: {why}");
            }
            let (dir, name) = (tempfile::tempdir().unwrap(), "net.ipv4.tcp_rmem");
            let spoilt = dir.path().join("tcp_rmem");
            std::fs::write(&spoilt, format!("1 2 3{}4", " ".repeat(40))).unwrap();
            rustix::mount::mount_bind(&spoilt, "/proc/sys/net/ipv4/tcp_rmem").unwrap();
            let change = SettingChange { name: name.to_owned(), value: "1 2 500000000".to_owned() };
            let mut fixed = Fixed { changes: vec![FixStep::of(&change)], ..Fixed::default() };
            let file = dir.path().join("doctor-undo.json");
            apply(&mut fixed, &[], &file).unwrap();
            let failure = fixed.changes[0].failure().unwrap();
            assert!(failure.contains("the old value could not be restored"), "{failure}");
            let saved = &undo_file::read(&file).unwrap().settings[0];
            assert_eq!((saved.old.as_str(), &saved.new), ("1 2 3 4", &setting::read(name).unwrap()));
            assert_eq!(fixed.changes[0].as_json()["written"], false);
        };
        std::thread::spawn(work).join().unwrap();
    }

    #[test]
    fn refused_setting_is_an_exit_code_and_only_a_clear_yes_is_one() {
        let change = |refused| change_of("net.ipv4.tcp_sack", refused);
        for (changes, is_declined, code) in [
            (vec![change(None)], false, ExitCode::SUCCESS),
            (vec![change(None), change(Some("no"))], false, exit::of(FailureKind::Denied).into()),
            (Vec::new(), true, exit::FOUND.into()),
        ] {
            let fixed = Fixed { changes, is_declined, ..Fixed::default() };
            assert_eq!(shown(fixed.exit_code(Severity::Problem)), shown(code));
        }
        assert!(is_yes("y\n") && is_yes(" YES\n"));
        for no in ["", "\n", "n\n", "yesterday\n", "yy\n"] {
            assert!(!is_yes(no), "{no}");
        }
    }

    #[test]
    fn what_is_applied_is_what_is_made_to_last() {
        let file = "/etc/udev/rules.d/90-longhaul.rules";
        let fix = |line: &str| Fix::command("x").lasting(file, line.to_owned());
        let both = fix("rule of both").changing_device("none0", "a", "1").changing_device("none0", "b", "1");
        let service =
            Fix::command("x").lasting_in_service(&["x".to_owned()]).changing("net.ipv4.tcp_none", "1");
        let fixes = [fix("MTU"), fix("rule of a").changing_device("none0", "a", "1"), both, service];
        let fixes: Vec<&Fix> = fixes.iter().collect();
        let lines = |b| {
            let changes = [("none0 a", None), ("none0 b", b), ("net.ipv4.tcp_none", None)];
            let changes = changes.map(|(name, refused)| change_of(name, refused)).into();
            let files = Fixed { changes, ..Fixed::default() }.lines_for(&fixes);
            assert_eq!((files.len(), files[0].what.file.as_str()), (1, file));
            files[0].what.lines.clone()
        };
        assert_eq!(lines(Some("no")), ["rule of a"]);
        assert_eq!(lines(None), ["rule of a", "rule of both"]);
    }
}
