//! The measurement of the disk.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::doctor::command::{LONG_FAT, assert_unread, doctor, finding, json, longhaul, unread};
use crate::support::names;

#[test]
fn disk_is_measured_and_nothing_is_left() {
    let home = tempfile::tempdir().unwrap();
    let report = json(&doctor(home.path(), &[&LONG_FAT[..], &["--json"]].concat()));
    // A disk that others keep busy may write nothing in the time, and that is said.
    if unread(&report, "disk write rate").is_some() {
        assert_unread(&report, "disk write rate", " within ");
    } else {
        assert!(finding(&report, "disk write rate")["quantity"]["measured"].as_u64().unwrap() > 0);
        assert!(finding(&report, "disk stall")["measured"].as_str().unwrap().ends_with(" ms"));
    }
    assert!(names(home.path()).is_empty());
}

#[test]
fn killed_measurement_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut child = longhaul(home.path()).arg("doctor").args(LONG_FAT).spawn().unwrap();
    // The file has no name; it is open while the measurement runs.
    let fds = format!("/proc/{}/fd", child.id());
    let is_measuring = || {
        let open = fs::read_dir(&fds).into_iter().flatten().flatten();
        let mut links = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        links.any(|link| link.starts_with(home.path()) && link.to_string_lossy().ends_with("(deleted)"))
    };
    let start = Instant::now();
    while !is_measuring() {
        let hangs = start.elapsed() > Duration::from_secs(60);
        assert!(!hangs && child.try_wait().unwrap().is_none(), "never measured");
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(home.path()).is_empty());
}

#[test]
fn directory_that_cannot_be_written_is_a_missing_reading() {
    let home = tempfile::tempdir().unwrap();
    let report = json(&doctor(home.path(), &[&LONG_FAT[..], &["--json", "--disk", "/proc"]].concat()));
    assert_unread(&report, "disk write rate", "cannot write in /proc");
    assert!(unread(&report, "Direct I/O").is_some());
    finding(&report, "tcp_rmem");
}
