//! The steps of a fix: what is planned, and why one was not done.

use std::io;

use longhaul_core::host_check::SettingChange;
use serde_json::{Value, json};

use super::undo_file::{self, SavedLines, SavedModule, SavedSetting};
use super::{kernel_module, setting, start_file};

/// One step: a module, a setting, or lines of a file.
#[derive(Debug)]
pub(super) struct FixStep<T: ?Sized> {
    refused: Option<Refused>,
    pub(super) what: T,
}

/// Why a step was not done.
#[derive(Debug)]
struct Refused {
    reason: String,
    /// Whether it was tried; else it was skipped before anything was changed.
    was_tried: bool,
}

/// A change that can be undone.
pub(super) trait Change {
    /// Makes the change.
    fn make(&mut self) -> io::Result<()>;
    /// Returns its name.
    fn title(&self) -> String;
    /// Returns what is to be done, to follow the name.
    fn details(&self) -> String;
    /// Returns it as JSON, with the reason why it was not done, if it was not.
    fn as_json(&self, reason: Option<&str>) -> Value;
}

impl<T> FixStep<T> {
    /// Plans a step, unless it is known already that it cannot be done.
    pub(super) fn new(what: T, refused: Option<String>) -> Self {
        Self { refused: refused.map(|reason| Refused { reason, was_tried: false }), what }
    }
}

impl<T: Change + ?Sized> FixStep<T> {
    /// Returns whether it is to be done, or is done.
    pub(super) fn is_open(&self) -> bool {
        self.refused.is_none()
    }

    /// Does it, unless it is refused.
    pub(super) fn attempt(&mut self) {
        if self.is_open() {
            let refuse = |error: io::Error| Refused { reason: error.to_string(), was_tried: true };
            self.refused = self.what.make().err().map(refuse);
        }
    }

    /// Returns the line that announces it.
    pub(super) fn plan(&self) -> String {
        match &self.refused {
            None => format!("  {}{}", self.what.title(), self.what.details()),
            Some(refused) => format!("  {}: skipped: {}", self.what.title(), refused.reason),
        }
    }

    /// Returns the line about an attempt that has failed.
    pub(super) fn failure(&self) -> Option<String> {
        let refused = self.refused.as_ref().filter(|refused| refused.was_tried)?;
        Some(format!("  {}: failed: {}", self.what.title(), refused.reason))
    }

    pub(super) fn as_json(&self) -> Value {
        self.what.as_json(self.refused.as_ref().map(|refused| refused.reason.as_str()))
    }
}

impl Change for SavedModule {
    fn make(&mut self) -> io::Result<()> {
        kernel_module::load(&self.name)
    }

    fn title(&self) -> String {
        format!("modprobe {}", self.name)
    }

    fn details(&self) -> String {
        String::new()
    }

    fn as_json(&self, reason: Option<&str>) -> Value {
        json!({ "name": self.name, "loaded": reason.is_none(), "reason": reason })
    }
}

impl FixStep<SavedSetting> {
    /// Reads the present value of a setting, and finds out whether it can be written.
    pub(super) fn of(change: &SettingChange) -> Self {
        let SettingChange { name, value } = change;
        let old = setting::read(name);
        let refused = match &old {
            Err(error) => Some(error.to_string()),
            Ok(_) => setting::check_writable(name).err().map(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!("{error}: needs root, in the host's own network namespace")
                }
                _ => error.to_string(),
            }),
        };
        let what = SavedSetting {
            namespace: undo_file::namespace(),
            name: name.clone(),
            before: old.as_ref().ok().cloned(),
            old: old.unwrap_or_default(),
            new: value.clone(),
            is_unrestored: false,
        };
        Self::new(what, refused)
    }

    /// Returns whether the old value is needed: for a change that is to be made, that is made, or
    /// that was not taken back.
    pub(super) fn is_to_be_saved(&self) -> bool {
        self.is_open() || self.what.is_unrestored
    }
}

impl Change for SavedSetting {
    /// Writes the value, and takes back what the kernel does not accept: a value that it took in
    /// part is neither.
    fn make(&mut self) -> io::Result<()> {
        let error = match setting::write(&self.name, &self.new) {
            Ok(now) => {
                (self.new, self.before) = (now, None);
                return Ok(());
            }
            Err(error) => error,
        };
        // Of a feature that another keeps off, the kernel remembers that it is wanted.
        if setting::write(&self.name, &self.old).is_ok() {
            return Err(error);
        }
        match setting::read(&self.name) {
            Ok(now) if now == self.old => return Err(error),
            Ok(now) => (self.new, self.before) = (now, None),
            Err(_) => {}
        }
        self.is_unrestored = true;
        Err(io::Error::new(
            error.kind(),
            format!("{error}, and the old value could not be restored: longhaul doctor --undo tries again"),
        ))
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    fn details(&self) -> String {
        let risk = if setting::is_rings(&self.name) { " (the driver may restart its link)" } else { "" };
        format!(": {} -> {}{risk}", self.old, self.new)
    }

    fn as_json(&self, reason: Option<&str>) -> Value {
        json!({ "name": self.name, "old": self.old, "new": self.new, "written": reason.is_none(), "reason": reason })
    }
}

impl Change for SavedLines {
    fn make(&mut self) -> io::Result<()> {
        start_file::add(&self.file, &self.lines)
    }

    fn title(&self) -> String {
        self.file.clone()
    }

    fn details(&self) -> String {
        self.lines.iter().map(|line| format!("\n    + {line}")).collect()
    }

    fn as_json(&self, reason: Option<&str>) -> Value {
        json!({ "name": self.file, "lines": self.lines, "written": reason.is_none(), "reason": reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, value: &str) -> FixStep<SavedSetting> {
        FixStep::of(&SettingChange { name: name.to_owned(), value: value.to_owned() })
    }

    #[test]
    fn absent_setting_is_skipped_and_a_failed_attempt_is_refused() {
        let absent = plan("net.ipv4.tcp_none", "1");
        assert!(absent.plan().contains("net.ipv4.tcp_none: skipped: No such file"), "{}", absent.plan());
        assert!(!absent.is_open() && absent.failure().is_none());
        assert!(!plan("kernel.hostname", "x").is_open() && !plan("none0 rings", "rx 1 tx 1").is_open());
        assert!(!plan("lo rings", "rx 1 tx 1").is_open(), "loopback has none");
        let mut step = FixStep::new(SavedModule { name: "nfs".to_owned() }, None);
        step.attempt();
        assert_eq!(step.failure().unwrap(), "  modprobe nfs: failed: it is no module of TCP");
        assert_eq!(step.as_json()["loaded"], false);
    }

    #[test]
    fn plan_of_rings_names_the_risk() {
        let plan =
            |name: &str| FixStep::new(undo_file::tests::saved(name, "rx 1 tx 1", "rx 2 tx 2"), None).plan();
        assert_eq!(plan("v0 rings"), "  v0 rings: rx 1 tx 1 -> rx 2 tx 2 (the driver may restart its link)");
        assert_eq!(plan("v0 qdisc"), "  v0 qdisc: rx 1 tx 1 -> rx 2 tx 2");
    }
}
