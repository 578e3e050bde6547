//! `--undo`: restores the values from before `--fix`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::undo_file::{self, SavedSetting};
use super::{Failure, kernel_setting};
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
    let (here, mut kept): (Vec<_>, Vec<_>) =
        undo_file::read(&file)?.into_iter().partition(|saved| saved.namespace == namespace);
    if here.is_empty() {
        let elsewhere = if kept.is_empty() { "" } else { " of this network namespace" };
        let message = format!("nothing is to be undone: {} holds no old values{elsewhere}", file.display());
        return Err((message, exit::NO_INPUT));
    }
    let mut is_refused = false;
    let mut changes = Vec::new();
    for saved in here {
        let restored = restore(&saved);
        if !json {
            say::output(describe(&saved, &restored));
        }
        changes.push(as_json(&saved, &restored));
        if matches!(restored, Restored::Refused(_)) {
            is_refused = true;
            kept.push(saved);
        }
    }
    undo_file::write(&file, &kept)?;
    if json {
        say::output(json!({ "event": "undo", "changes": changes }));
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
