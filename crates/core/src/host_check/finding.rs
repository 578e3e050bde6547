//! What a check says of one property of the host.

use serde::Serialize;

/// How much a property matters for the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It suffices.
    Ok,
    /// It may cost throughput, or costs some at times.
    Advice,
    /// It keeps the transfer below its rate.
    Problem,
}

/// One property of the host, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The property, unique within a report.
    pub name: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The value of this host, for people.
    pub measured: String,
    /// The value that the transfer needs, for people.
    pub needed: String,
    /// Both as numbers, where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// How the needed value follows from rate and RTT, or what the measured one costs.
    pub arithmetic: String,
    /// How to change it; `None` where there is nothing to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
    /// Where the advice comes from.
    pub source: &'static str,
}

/// A measured and a needed number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quantity {
    /// The value of this host.
    pub measured: u64,
    /// The value that the transfer needs.
    pub needed: u64,
    /// Their unit.
    pub unit: &'static str,
}

/// The change that cures a finding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Fix {
    /// Commands that change it now, as root unless they are options of the transfer; none where
    /// none does.
    pub commands: Vec<String>,
    /// What else helps, what bounds the change, or why nothing makes it last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What makes the change last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasting>,
    /// Kernel modules that are to be loaded before, as the lines of the file that loads them at
    /// each start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<Lasting>,
    /// Settings among the commands, in the order in which they depend on each other: what can be
    /// applied and undone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SettingChange>,
}

/// Lines of a file that is read when the system starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lasting {
    /// The file.
    pub file: String,
    /// Its lines.
    pub lines: Vec<String>,
}

/// The file of kernel settings that last: those of later names count more (sysctl.d(5)), as
/// Debian's 99-sysctl.conf.
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/99-zz-longhaul.conf";

/// What a fix says that holds for one process.
pub(super) const BEFORE_EACH_TRANSFER: &str = "it holds for this one process: the file is for longhaul serve as a service, transfers are begun so each time";
/// The file of settings of `longhaul serve` as a service (systemd.unit(5), drop-ins).
const SERVICE_FILE: &str = "/etc/systemd/system/longhaul-serve.service.d/90-longhaul.conf";
/// The user's options of transfers; those before its first table are for all commands.
const CONFIG_FILE: &str = "~/.config/longhaul/config.toml";
/// The file of modules that are loaded at each start (modules-load.d(5)), before kernel settings
/// are written.
const MODULES_FILE: &str = "/etc/modules-load.d/longhaul.conf";
/// The file of device settings that last.
pub(super) const UDEV_RULES: &str = "/etc/udev/rules.d/90-longhaul.rules";
/// The file of what is written to files of the kernel at each start (tmpfiles.d(5)).
pub(super) const TMPFILES: &str = "/etc/tmpfiles.d/90-longhaul.conf";
/// The files that hold lines of this program alone, and are read at each start.
pub const START_FILES: [&str; 4] = [SYSCTL_FILE, MODULES_FILE, UDEV_RULES, TMPFILES];

/// A setting of the host and its new value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingChange {
    /// Its name: as sysctl(8) writes it, that of a device and its property, or [`GOVERNOR`].
    pub name: String,
    /// The value to set.
    pub value: String,
}

/// The name of the setting of all processors' frequency governors.
pub const GOVERNOR: &str = "CPU governor";
/// The property of a device that is its queueing disciplines: "fq", or "mq of fq" where it has
/// several queues.
pub const QDISC: &str = "qdisc";
/// The property of a device that is the sizes of its rings: "rx 512 tx 512".
pub const RINGS: &str = "rings";

/// A reading that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// The property.
    pub name: &'static str,
    /// Why it could not be read.
    pub reason: String,
    /// What it would have shown.
    pub would_show: &'static str,
}

impl Finding {
    /// Makes a finding without numbers and without a fix; the diagnosis that it is added to names
    /// it.
    pub fn new(severity: Severity, measured: impl Into<String>, source: &'static str) -> Self {
        Self {
            name: "",
            severity,
            measured: measured.into(),
            needed: String::new(),
            quantity: None,
            arithmetic: String::new(),
            fix: None,
            source,
        }
    }

    /// Sets the needed value and how it follows.
    #[must_use]
    pub fn needs(self, needed: impl Into<String>, arithmetic: impl Into<String>) -> Self {
        Self { needed: needed.into(), arithmetic: arithmetic.into(), ..self }
    }

    /// Sets both values as numbers.
    #[must_use]
    pub fn counted(self, measured: u64, needed: u64, unit: &'static str) -> Self {
        Self { quantity: Some(Quantity { measured, needed, unit }), ..self }
    }

    /// Sets the fix, unless the finding is that all is well.
    #[must_use]
    pub fn fixed_by(self, fix: Fix) -> Self {
        let fix = (self.severity != Severity::Ok).then_some(fix);
        Self { fix, ..self }
    }
}

impl Fix {
    /// Sets a kernel setting.
    pub fn sysctl(name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        Self {
            commands: vec![format!("sysctl -w {name}={}", quoted(&value))],
            lasting: Some(Lasting { file: SYSCTL_FILE.to_owned(), lines: vec![format!("{name} = {value}")] }),
            changes: vec![SettingChange { name: name.to_owned(), value }],
            ..Self::default()
        }
    }

    /// Adds a setting that the commands change.
    #[must_use]
    pub fn changing(mut self, name: &str, value: impl Into<String>) -> Self {
        self.changes.push(SettingChange { name: name.to_owned(), value: value.into() });
        self
    }

    /// Adds a property of a device that the commands change: [`QDISC`], [`RINGS`], or the kernel's
    /// name of a feature.
    #[must_use]
    pub fn changing_device(self, device: &str, property: &str, value: impl Into<String>) -> Self {
        self.changing(&format!("{device} {property}"), value)
    }

    /// Runs a command whose effect ends with the system, or which is one of a transfer.
    pub fn command(command: impl Into<String>) -> Self {
        Self { commands: vec![command.into()], ..Self::default() }
    }

    /// Says what no command does.
    pub fn advice(note: impl Into<String>) -> Self {
        Self::default().noted(note)
    }

    /// Adds the line of a file that makes it last.
    #[must_use]
    pub fn lasting(self, file: &str, line: String) -> Self {
        Self { lasting: Some(Lasting { file: file.to_owned(), lines: vec![line] }), ..self }
    }

    /// Adds settings of `longhaul serve` as a service, in which it lasts.
    #[must_use]
    pub fn lasting_in_service(self, settings: &[String]) -> Self {
        let lines = std::iter::once("[Service]".to_owned()).chain(settings.iter().cloned()).collect();
        Self { lasting: Some(Lasting { file: SERVICE_FILE.to_owned(), lines }), ..self }
    }

    /// Adds an option of transfers to the user's configuration, which makes it last.
    #[must_use]
    pub fn lasting_option(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.lasting(CONFIG_FILE, format!("{name} = \"{value}\""))
    }

    /// Adds a sentence.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        if !self.note.is_empty() {
            self.note += "; ";
        }
        self.note += &note.into();
        self
    }

    /// Loads a kernel module before all else.
    #[must_use]
    pub fn after_module(mut self, module: String) -> Self {
        self.commands.insert(0, format!("modprobe {module}"));
        let none = || Lasting { file: MODULES_FILE.to_owned(), lines: Vec::new() };
        self.modules.get_or_insert_with(none).lines.push(module);
        self
    }
}

/// Quotes a value of several words for a shell.
fn quoted(value: &str) -> String {
    if value.contains(' ') { format!("\"{value}\"") } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fix_of_several_words_is_quoted_in_the_command_only() {
        let fix = Fix::sysctl("net.ipv4.tcp_rmem", "4096 131072 500000000");
        assert_eq!(fix.commands, ["sysctl -w net.ipv4.tcp_rmem=\"4096 131072 500000000\""]);
        assert_eq!(fix.lasting.unwrap().lines, ["net.ipv4.tcp_rmem = 4096 131072 500000000"]);
        assert_eq!(Fix::sysctl("net.ipv4.tcp_sack", "1").commands, ["sysctl -w net.ipv4.tcp_sack=1"]);
        // A finding that all is well has no fix.
        let of = |severity| Finding::new(severity, "1", "y").fixed_by(Fix::sysctl("a.b", "1")).fix;
        assert!(of(Severity::Ok).is_none() && of(Severity::Advice).is_some());
    }
}
