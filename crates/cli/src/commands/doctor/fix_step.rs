//! The steps of a fix: what is planned, and why one was not done.

use std::io;

use longhaul_core::host_check::SettingChange;
use serde_json::{Value, json};

use super::setting;
use super::undo_file::SavedSetting;

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

/// What people read of a step.
pub(super) trait Shown {
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

impl<T: Shown + ?Sized> FixStep<T> {
    /// Says whether it is to be done, or is done.
    pub(super) fn is_open(&self) -> bool {
        self.refused.is_none()
    }

    /// Does it, unless it is refused.
    pub(super) fn attempt(&mut self, job: impl FnOnce(&mut T) -> io::Result<()>) {
        if self.is_open() {
            let refuse = |error: io::Error| Refused { reason: error.to_string(), was_tried: true };
            self.refused = job(&mut self.what).err().map(refuse);
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

/// A kernel module to load before settings are written.
#[derive(Debug)]
pub(super) struct Module(pub(super) String);

impl Shown for Module {
    fn title(&self) -> String {
        format!("modprobe {}", self.0)
    }

    fn details(&self) -> String {
        String::new()
    }

    fn as_json(&self, reason: Option<&str>) -> Value {
        json!({ "name": self.0, "loaded": reason.is_none(), "reason": reason })
    }
}

/// A setting to write.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) old: String,
    pub(super) new: String,
    /// Whether a failed attempt has left a third value, `new`, in place of the old one: it stays saved.
    is_unrestored: bool,
    /// Whether `new` was read after it was written.
    is_read: bool,
}

impl FixStep<Change> {
    /// Says whether the old value is needed: for a change that is to be made, that is made, or that was not taken back.
    pub(super) fn is_to_be_saved(&self) -> bool {
        self.is_open() || self.what.is_unrestored
    }
}

impl Change {
    pub(super) fn new(name: String, old: String, new: String) -> Self {
        Self { name, old, new, is_unrestored: false, is_read: false }
    }

    /// Reads the present value, and finds out whether it can be written.
    pub(super) fn plan(change: &SettingChange) -> FixStep<Self> {
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
        FixStep::new(Self::new(name.clone(), old.unwrap_or_default(), value.clone()), refused)
    }

    /// Writes the value, and takes back what the kernel does not accept: a value that it took in part is neither.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let error = match setting::write(&self.name, &self.new) {
            Ok(now) => {
                (self.new, self.is_read) = (now, true);
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
            Ok(now) => (self.new, self.is_read) = (now, true),
            Err(_) => {}
        }
        self.is_unrestored = true;
        Err(io::Error::new(
            error.kind(),
            format!("{error}, and the old value could not be restored: longhaul doctor --undo tries again"),
        ))
    }

    pub(super) fn saved(&self, namespace: &str) -> SavedSetting {
        SavedSetting {
            namespace: namespace.to_owned(),
            name: self.name.clone(),
            old: self.old.clone(),
            new: self.new.clone(),
            before: (!self.is_read).then(|| self.old.clone()),
        }
    }
}

impl Shown for Change {
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

/// Lines to add to a file that is read at each start.
#[derive(Debug)]
pub(super) struct StartLines {
    pub(super) file: String,
    pub(super) lines: Vec<String>,
}

impl Shown for StartLines {
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

    fn plan(name: &str, value: &str) -> FixStep<Change> {
        Change::plan(&SettingChange { name: name.to_owned(), value: value.to_owned() })
    }

    #[test]
    fn absent_setting_is_skipped_and_a_failed_attempt_is_refused() {
        let absent = plan("net.ipv4.tcp_none", "1");
        assert!(absent.plan().contains("net.ipv4.tcp_none: skipped: No such file"), "{}", absent.plan());
        assert!(!absent.is_open() && absent.failure().is_none());
        assert!(!plan("kernel.hostname", "x").is_open() && !plan("none0 rings", "rx 1 tx 1").is_open());
        assert!(!plan("lo rings", "rx 1 tx 1").is_open(), "loopback has none");
        let mut step = FixStep::new(Module("tcp_none".to_owned()), None);
        step.attempt(|_| Err(io::Error::other("no")));
        assert_eq!(step.failure().unwrap(), "  modprobe tcp_none: failed: no");
        assert_eq!(step.as_json()["loaded"], false);
        step.attempt(|_| panic!("it is refused"));
    }

    #[test]
    fn plan_of_rings_names_the_risk() {
        let plan = |name: &str| {
            let [name, old, new] = [name, "rx 1 tx 1", "rx 2 tx 2"].map(str::to_owned);
            FixStep::new(Change::new(name, old, new), None).plan()
        };
        assert_eq!(plan("v0 rings"), "  v0 rings: rx 1 tx 1 -> rx 2 tx 2 (the driver may restart its link)");
        assert_eq!(plan("v0 qdisc"), "  v0 qdisc: rx 1 tx 1 -> rx 2 tx 2");
    }
}
