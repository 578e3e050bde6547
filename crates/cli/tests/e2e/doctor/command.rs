//! `longhaul doctor`, on this host or on one of a lab.

use std::path::Path;
use std::process::Command;

use longhaul_sys::netns;
use serde_json::Value;

use crate::support::lab::{exec_in, needs_lab, ran, ran_in};
use crate::support::{Ended, skip};

/// The path that the tests ask about: 250 MB in flight.
pub(crate) const LONG_FAT: [&str; 4] = ["--rate", "10Gbit", "--rtt", "200ms"];

pub(crate) fn doctor(home: &Path, args: &[&str]) -> Ended {
    ran_in(home, &[&["doctor"], args].concat())
}

/// Asks about the path, without measuring the disk.
pub(crate) fn about_path(home: &Path, args: &[&str]) -> Ended {
    doctor(home, &[&LONG_FAT[..], &["--no-disk-test"], args].concat())
}

/// Undoes in the namespace of this thread; returns the exit code, and what is printed.
pub(crate) fn undo(home: &Path) -> (Option<i32>, String) {
    let ended = doctor(home, &["--undo"]);
    (ended.status.code(), ended.stdout + &ended.stderr)
}

/// Runs a shell command on the client of a lab with these options; `None`, with the reason printed,
/// where no lab can be made.
pub(crate) fn in_lab_with(home: &Path, options: &[&str], shell: &str) -> Option<Ended> {
    needs_lab()?;
    Some(ran(exec_in(home, options, shell)))
}

/// As [`in_lab_with`] veth devices and the kernel's defaults.
pub(crate) fn in_lab(home: &Path, shell: &str) -> Option<Ended> {
    in_lab_with(home, &["--hosts", "stock"], shell)
}

pub(crate) fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn named<'a>(report: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    report[list].as_array().unwrap().iter().find(|item| item["name"] == name)
}

pub(crate) fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    named(report, "findings", name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

pub(crate) fn change<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    named(report, "changes", name)
}

/// Returns the reading of a name that is missing.
pub(crate) fn unread<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    named(report, "unread", name)
}

/// Asserts that the reading of a name is missing, for a reason that contains `why`, and that what
/// it would show is said.
pub(crate) fn assert_unread(report: &Value, name: &str, why: &str) {
    let missing = unread(report, name).unwrap_or_else(|| panic!("{name} was read: {report}"));
    let reason = missing["reason"].as_str().unwrap();
    assert!(reason.contains(why) && missing["would_show"].is_string(), "{missing}");
}

/// Runs `job` in network and mount namespaces of its own, as root, with `home` as its home; not at
/// all, with the reason printed, where none can be made.
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

/// Runs commands that must succeed, one a line.
pub(crate) fn run(commands: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-ec", commands]);
    ran(shell).ok();
}
