//! `--undo`: restores the values from before `--fix`, and unloads the modules that it loaded.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::undo_file::{self, Saved, SavedSetting};
use super::{Failure, kernel_module, kernel_setting};
use crate::{exit, say};

/// What became of a saved value.
enum Restored {
    Written,
    /// It is not what was written: another hand has changed it since.
    LeftAlone(String),
    Refused(String),
}

/// Restores what was changed in this network namespace; values of others stay saved.
pub(super) fn run(json: bool) -> Result<ExitCode, Failure> {
    let file = undo_file::path()?;
    let namespace = undo_file::namespace();
    let saved = undo_file::read(&file)?;
    let (settings, kept_settings): (Vec<_>, Vec<_>) =
        saved.settings.into_iter().partition(|saved| saved.namespace == namespace);
    let (modules, kept_modules): (Vec<_>, Vec<_>) =
        saved.modules.into_iter().partition(|saved| saved.namespace == namespace);
    let mut kept = Saved { settings: kept_settings, modules: kept_modules };
    if settings.is_empty() && modules.is_empty() {
        let is_none = kept.settings.is_empty() && kept.modules.is_empty();
        let elsewhere = if is_none { "" } else { " of this network namespace" };
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
    for saved in settings {
        let restored = restore(&saved);
        tell(describe(&saved, &restored));
        changes.push(as_json(&saved, &restored));
        if matches!(restored, Restored::Refused(_)) {
            is_refused = true;
            kept.settings.push(saved);
        }
    }
    // A control that a setting names cannot be unloaded: settings are restored first.
    let mut unloaded = Vec::new();
    for module in modules {
        let is_gone = !kernel_module::is_loaded(&module.name);
        let refused = (!is_gone).then(|| kernel_module::unload(&module.name).err()).flatten();
        let reason = refused.map(|error| error.to_string());
        tell(match &reason {
            None if is_gone => format!("module {}: was not loaded", module.name),
            None => format!("module {}: unloaded", module.name),
            Some(reason) => format!("module {}: not unloaded: {reason}", module.name),
        });
        unloaded.push(json!({ "name": module.name, "loaded": reason.is_some(), "reason": reason }));
        if reason.is_some() {
            is_refused = true;
            kept.modules.push(module);
        }
    }
    undo_file::write(&file, &kept)?;
    if json {
        say::output(json!({ "event": "undo", "changes": changes, "modules": unloaded }));
    }
    Ok(if is_refused { exit::NO_PERMISSION.into() } else { ExitCode::SUCCESS })
}

fn restore(saved: &SavedSetting) -> Restored {
    let is = |now: &str, value: &str| kernel_setting::is_same(&saved.name, now, value);
    match kernel_setting::read(&saved.name) {
        Ok(now) if is(&now, &saved.old) => Restored::Written,
        Ok(now) if !is(&now, &saved.new) && saved.before.as_deref() != Some(&now) => Restored::LeftAlone(now),
        Ok(_) => match kernel_setting::write(&saved.name, &saved.old) {
            Ok(()) => Restored::Written,
            Err(error) => Restored::Refused(error.to_string()),
        },
        Err(error) => Restored::Refused(error.to_string()),
    }
}

fn describe(saved: &SavedSetting, restored: &Restored) -> String {
    let SavedSetting { name, old, new, .. } = saved;
    match restored {
        Restored::Written => format!("{name}: {new} -> {old}"),
        Restored::LeftAlone(now) => format!("{name}: left at {now}, which is not the value of --fix ({new})"),
        Restored::Refused(reason) => format!("{name}: not restored: {reason}"),
    }
}

fn as_json(saved: &SavedSetting, restored: &Restored) -> Value {
    let reason = match restored {
        Restored::Written => None,
        Restored::LeftAlone(now) => Some(format!("it was changed to {now} since")),
        Restored::Refused(reason) => Some(reason.clone()),
    };
    json!({ "name": saved.name, "old": saved.new, "new": saved.old, "written": reason.is_none(), "reason": reason })
}
