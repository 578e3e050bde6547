//! `--undo`: restores the values from before `--fix`, unloads the modules that it loaded, and removes the lines that it added.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::kernel_module::{self, Unloaded};
use super::undo_file::{self, SavedLines, SavedModule, SavedSetting, UndoRecord};
use super::{Failure, setting, start_file};
use crate::{exit, say};

/// What became of a saved value.
enum Restored {
    Written,
    /// It is not what was written: another hand has changed it since.
    LeftAlone(String),
    /// Its device is gone.
    Gone,
    Refused(String),
}

const GONE: &str = "the device is gone: nothing to restore";

/// Restores what was changed in this network namespace, the last change first; values of others stay saved. A module, which all
/// namespaces share, is unloaded once no saved value names its congestion control. Files are those of the host.
pub(super) fn run(json: bool) -> Result<ExitCode, Failure> {
    let file = undo_file::path()?;
    let namespace = undo_file::namespace();
    let _lock = undo_file::lock(&file)?;
    let saved = undo_file::read(&file)?;
    let (settings, kept_settings): (Vec<_>, Vec<_>) =
        saved.settings.into_iter().partition(|saved| saved.namespace == namespace);
    let mut kept = UndoRecord { settings: kept_settings, modules: saved.modules, lines: Vec::new() };
    let has_modules = !kept.modules.iter().all(|module| is_needed(module, &kept.settings));
    if settings.is_empty() && !has_modules && saved.lines.is_empty() {
        let elsewhere = if kept.settings.is_empty() { "" } else { " of this network namespace" };
        let message = format!("nothing is to be undone: {} holds no old values{elsewhere}", file.display());
        return Err((message, exit::NO_INPUT));
    }
    let tell = |line: String| {
        if !json {
            say::output(line);
        }
    };
    let mut is_refused = false;
    let mut changes = Vec::new();
    let first_kept = kept.settings.len();
    for saved in settings.into_iter().rev() {
        let restored = restore(&saved);
        tell(describe(&saved, &restored));
        changes.push(as_json(&saved, &restored));
        if matches!(restored, Restored::Refused(_)) {
            is_refused = true;
            // A part may have been restored: another attempt finds this value.
            let new = setting::read(&saved.name).unwrap_or_else(|_| saved.new.clone());
            kept.settings.push(SavedSetting { new, before: None, ..saved });
        }
    }
    kept.settings[first_kept..].reverse();
    // After the settings, as the kernel unloads no control that one names.
    let mut modules = Vec::new();
    for module in std::mem::take(&mut kept.modules) {
        let name = &module.name;
        let unloaded = (!is_needed(&module, &kept.settings)).then(|| kernel_module::unload(name));
        let (line, reason) = match &unloaded {
            None => ("stays loaded", Some("a saved value, which is not restored, names it")),
            Some(Unloaded::Done) => ("unloaded", None),
            Some(Unloaded::WasNotLoaded) => ("was not loaded", None),
            Some(Unloaded::Stays(reason)) => ("stays loaded", Some(*reason)),
            Some(Unloaded::Refused(reason)) => ("not unloaded", Some(reason.as_str())),
        };
        tell(reason.map_or_else(
            || format!("module {name}: {line}"),
            |reason| format!("module {name}: {line}: {reason}"),
        ));
        modules.push(json!({ "name": name, "loaded": reason.is_some(), "reason": reason }));
        is_refused |= matches!(unloaded, Some(Unloaded::Refused(_)));
        if matches!(unloaded, None | Some(Unloaded::Refused(_))) {
            kept.modules.push(module);
        }
    }
    let mut files = Vec::new();
    for saved in saved.lines {
        let SavedLines { file, lines } = &saved;
        let reason = start_file::remove(file, lines).err().map(|error| error.to_string());
        tell(reason.as_ref().map_or_else(
            || format!("{file}: lines removed: {}", lines.len()),
            |reason| format!("{file}: no lines removed: {reason}"),
        ));
        files.push(json!({ "name": file, "lines": lines, "written": reason.is_none(), "reason": reason }));
        if reason.is_some() {
            is_refused = true;
            kept.lines.push(saved);
        }
    }
    undo_file::write(&file, &kept)?;
    if json {
        say::output(json!({ "event": "undo", "changes": changes, "modules": modules, "files": files }));
    }
    Ok(if is_refused { exit::NO_PERMISSION.into() } else { ExitCode::SUCCESS })
}

/// Returns whether one of the settings was given a value that names the congestion control of a module.
fn is_needed(module: &SavedModule, settings: &[SavedSetting]) -> bool {
    let control = module.name.strip_prefix("tcp_");
    settings.iter().any(|saved| saved.new.split(' ').any(|word| Some(word) == control))
}

fn restore(saved: &SavedSetting) -> Restored {
    let is = |now: &str, value: &str| setting::is_same(&saved.name, now, value);
    match setting::read(&saved.name) {
        Ok(now) if is(&now, &saved.old) => Restored::Written,
        Ok(now) if !saved.is_own(&now) => Restored::LeftAlone(now),
        Ok(now) => match setting::write(&saved.name, &saved.old) {
            // A driver may round a size up, but not to that of --fix.
            Ok(left) if left == now => Restored::Refused(format!("the device keeps {left}")),
            Ok(_) => Restored::Written,
            Err(error) => Restored::Refused(error.to_string()),
        },
        Err(_) if setting::is_gone(&saved.name) => Restored::Gone,
        Err(error) => Restored::Refused(error.to_string()),
    }
}

fn describe(saved: &SavedSetting, restored: &Restored) -> String {
    let SavedSetting { name, old, new, .. } = saved;
    match restored {
        Restored::Written => format!("{name}: {new} -> {old}"),
        Restored::LeftAlone(now) => format!("{name}: left at {now}, which is not the value of --fix ({new})"),
        Restored::Gone => format!("{name}: {GONE}"),
        Restored::Refused(reason) => format!("{name}: not restored: {reason}"),
    }
}

fn as_json(saved: &SavedSetting, restored: &Restored) -> Value {
    let reason = match restored {
        Restored::Written => None,
        Restored::LeftAlone(now) => Some(format!("it was changed to {now} since")),
        Restored::Gone => Some(GONE.to_owned()),
        Restored::Refused(reason) => Some(reason.clone()),
    };
    json!({ "name": saved.name, "old": saved.new, "new": saved.old, "written": reason.is_none(), "reason": reason })
}
