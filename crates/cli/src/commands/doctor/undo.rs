//! `--undo`: restores the values from before `--fix`, unloads the modules that it loaded, and
//! removes the lines that it added.

use std::process::ExitCode;

use longhaul_core::failure::{Failure, FailureKind};
use serde_json::json;

use super::fix_step::Change;
use super::kernel_module::{self, Unloaded};
use super::undo_file::{self, SavedLines, SavedModule, SavedSetting, UndoRecord};
use super::{setting, start_file};
use crate::{exit, stdout};

const GONE: &str = "the device is gone: nothing to restore";

/// Restores what was changed in this network namespace, the last change first; values of others
/// stay saved. A module, which all namespaces share, is unloaded once no saved value names its
/// congestion control. Files are those of the host.
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
        return Err(Failure::new(FailureKind::NotFound, message));
    }
    let tell = |line: String| {
        if !json {
            stdout::line(line);
        }
    };
    let mut is_refused = false;
    let mut changes = Vec::new();
    let first_kept = kept.settings.len();
    for saved in settings.into_iter().rev() {
        let (line, reason, refused) = restore(&saved);
        tell(line);
        changes.push(json!({ "name": saved.name, "old": saved.new, "new": saved.old, "written": reason.is_none(), "reason": reason }));
        if refused {
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
        let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        tell(format!("module {name}: {line}{why}"));
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
        files.push(saved.as_json(reason.as_deref()));
        if reason.is_some() {
            is_refused = true;
            kept.lines.push(saved);
        }
    }
    undo_file::write(&file, &kept)?;
    if json {
        stdout::line(json!({ "event": "undo", "changes": changes, "modules": modules, "files": files }));
    }
    Ok(if is_refused { exit::of(FailureKind::Denied).into() } else { ExitCode::SUCCESS })
}

/// Returns whether one of the settings was given a value that names the congestion control of a
/// module.
fn is_needed(module: &SavedModule, settings: &[SavedSetting]) -> bool {
    let control = module.name.strip_prefix("tcp_");
    settings.iter().any(|saved| saved.new.split(' ').any(|word| Some(word) == control))
}

/// Restores a setting; returns a line about it, why it does not have its old value, and whether
/// that was refused.
fn restore(saved: &SavedSetting) -> (String, Option<String>, bool) {
    let SavedSetting { name, old, new, .. } = saved;
    let written = || (format!("{name}: {new} -> {old}"), None, false);
    let refused = |reason: String| (format!("{name}: not restored: {reason}"), Some(reason), true);
    match setting::read(name) {
        Ok(now) if setting::is_same(name, &now, old) => written(),
        // Another hand has changed it since.
        Ok(now) if !saved.is_own(&now) => {
            let line = format!("{name}: left at {now}, which is not the value of --fix ({new})");
            (line, Some(format!("it was changed to {now} since")), false)
        }
        Ok(now) => match setting::write(name, old) {
            // A driver may round a size up, but not to that of --fix.
            Ok(left) if left == now => refused(format!("the device keeps {left}")),
            Ok(_) => written(),
            Err(error) => refused(error.to_string()),
        },
        Err(_) if setting::is_gone(name) => (format!("{name}: {GONE}"), Some(GONE.to_owned()), false),
        Err(error) => refused(error.to_string()),
    }
}
