//! `longhaul lab` as a child process, and checks for leftovers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) use crate::support::skip;

pub(crate) const SLOW: [&str; 4] = ["--rate", "100Mbit", "--rtt", "20ms"];

/// Creates a command of the program with its own home: the user's path memory is unaffected.
pub(crate) fn longhaul(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("HOME", home).env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
    command
}

pub(crate) fn exec(options: &[&str], shell: &str) -> Command {
    let mut command = longhaul(env!("CARGO_TARGET_TMPDIR").as_ref());
    command.args(["lab", "exec"]).args(options).args(["--", "sh", "-c", shell]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns whether no lab can be built; that is a failure under CI.
pub(crate) fn skipped() -> bool {
    let output = exec(&SLOW, "true").output().unwrap();
    if output.status.success() {
        return false;
    }
    let why = text(&output.stderr);
    assert!(output.status.code() == Some(77), "{why}");
    skip(&why);
    true
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Returns the processes whose command line contains `word`.
pub(crate) fn processes_with(word: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    };
    fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(holds).collect()
}

pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(5), "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}
