//! Kernel modules of TCP, by modprobe(8).

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the kernel shows its modules.
const SHOWN: &str = "/sys/module";

/// What became of a module that was to be unloaded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unloaded {
    Done,
    WasNotLoaded,
    /// Another attempt would end so too, for this reason.
    Stays(&'static str),
    Refused(String),
}

/// Says whether a module is loaded; the kernel shows those that are built in, too, where they have
/// parameters.
pub(super) fn is_loaded(name: &str) -> bool {
    Path::new(SHOWN).join(name).exists()
}

/// Says whether this process may load a module, without loading it.
pub(super) fn check_loadable() -> io::Result<()> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Loads a module and those that it needs.
pub(super) fn load(name: &str) -> io::Result<()> {
    check_name(name)?;
    modprobe(&[name])
}

/// Unloads a module, and those that it alone needed.
pub(super) fn unload(name: &str) -> Unloaded {
    if let Err(error) = check_name(name) {
        return Unloaded::Refused(error.to_string());
    }
    if !is_loaded(name) {
        return Unloaded::WasNotLoaded;
    }
    match modprobe(&["-r", name]) {
        Ok(()) => Unloaded::Done,
        Err(error) => {
            why_it_stays(name).map_or_else(|| Unloaded::Refused(error.to_string()), Unloaded::Stays)
        }
    }
}

/// Returns why the kernel keeps a module: it counts the connections, settings and modules that use
/// it, where it can unload any.
fn why_it_stays(name: &str) -> Option<&'static str> {
    match std::fs::read_to_string(Path::new(SHOWN).join(name).join("refcnt")) {
        Ok(users) if matches!(users.trim().parse::<i64>(), Ok(1..)) => {
            Some("it is in use; modprobe -r unloads it later")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some("this kernel unloads no modules"),
        _ => None,
    }
}

/// Names come from a file of the user's, too: only those of TCP are taken.
fn check_name(name: &str) -> io::Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.starts_with("tcp_") && name.chars().all(is_plain) {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no module of TCP"))
    }
}

fn modprobe(arguments: &[&str]) -> io::Result<()> {
    let run = |program| Command::new(program).args(arguments).stdin(Stdio::null()).output();
    // The PATH of a root shell that su(1) began may lack it.
    let output = match run("modprobe") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => run("/sbin/modprobe"),
        output => output,
    };
    let output =
        output.map_err(|error| io::Error::new(error.kind(), format!("modprobe: {error}: install kmod")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(match said.trim() {
        "" => format!("modprobe: {}", output.status),
        said => said.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_tcp_are_tried_and_no_others() {
        for name in ["nfs", "tcp_bbr nfs", "tcp_/../nfs", "-r", ""] {
            let error = load(name).unwrap_err();
            assert_eq!(error.to_string(), "it is no module of TCP", "{name}");
            assert_eq!(unload(name), Unloaded::Refused("it is no module of TCP".to_owned()), "{name}");
        }
        assert!(!is_loaded("tcp_none") && unload("tcp_none") == Unloaded::WasNotLoaded);
        // Whether modprobe is missing, this user may not, or there is no such module: it is said.
        assert!(!load("tcp_none").unwrap_err().to_string().is_empty());
    }
}
