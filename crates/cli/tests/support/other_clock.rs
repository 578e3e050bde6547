//! The clock of another host, by libfaketime.

use std::path::Path;
use std::process::Command;

use super::skip;

/// Returns the variables by which a program sees the wall clock at an offset, as `+1h`. Its
/// monotonic clocks and the times of files are as they are. `None` if libfaketime is not installed.
pub(crate) fn other_clock(offset: &str) -> Option<[(&'static str, String); 4]> {
    let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH);
    if !Path::new(&library).exists() {
        skip("libfaketime is not installed");
        return None;
    }
    let variables = [
        ("LD_PRELOAD", library),
        ("FAKETIME", offset.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("NO_FAKE_STAT", "1".to_owned()),
    ];
    let clock = |command: &mut Command| -> i64 {
        let shown = command.arg("+%s").output().unwrap().stdout;
        String::from_utf8(shown).unwrap().trim().parse().unwrap()
    };
    let other = clock(Command::new("date").envs(variables.clone()));
    assert!((other - clock(&mut Command::new("date"))).abs() > 60, "{offset} has no effect");
    Some(variables)
}
