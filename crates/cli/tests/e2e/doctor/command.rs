//! `longhaul doctor`, on this host or on one of a lab.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use longhaul_sys::netns;
use serde_json::Value;

pub(crate) use crate::support::skip;

/// The path that the tests ask about: 250 MB in flight.
pub(crate) const LONG_FAT: [&str; 4] = ["--rate", "10Gbit", "--rtt", "200ms"];

/// Prepares the command, with state of its own.
pub(crate) fn doctor(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("doctor").args(args).env("HOME", home).env_remove("XDG_STATE_HOME").current_dir(home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a shell command on the client of a lab, where `$LONGHAUL` is the program; `None`, with the reason printed,
/// where no lab can be made.
pub(crate) fn in_lab(home: &Path, shell: &str) -> Option<Output> {
    let program = env!("CARGO_BIN_EXE_longhaul");
    let mut command = Command::new(program);
    // Veth devices, and the kernel's defaults.
    command.args(["lab", "exec", "--hosts", "stock", "--", "sh", "-c", shell]);
    command.env("LONGHAUL", program).env("HOME", home).env_remove("XDG_STATE_HOME").current_dir(home);
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.code() == Some(77) && text(&output.stderr).contains("CAP_") {
        skip(&text(&output.stderr));
        return None;
    }
    Some(output)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr)))
}

/// Returns the finding of a name.
pub(crate) fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Returns the reading of a name that is missing.
pub(crate) fn unread<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    report["unread"].as_array().unwrap().iter().find(|unread| unread["name"] == name)
}

/// Runs `job` in network and mount namespaces of its own, as root, with `home` as its home; not at all, with the reason printed, where
/// none can be made.
pub(crate) fn in_namespaces(job: impl FnOnce(&Path) + Send + 'static) {
    let work = move || {
        if let Err(why) = netns::enter_new_network().and_then(|_| netns::enter_new_mounts()) {
            return skip(&why.to_string());
        }
        let home = tempfile::tempdir().unwrap();
        job(home.path());
    };
    std::thread::spawn(work).join().unwrap();
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &str) {
    let mut words = command.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}: {status}");
}
