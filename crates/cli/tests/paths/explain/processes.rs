//! Running processes, observed from outside.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::explain::command::{Running, explain, fails, first_object, skip, text};

#[test]
fn program_that_reads_slowly_is_the_limit_of_its_own_download() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sender = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // Writes until the reader closes.
        while socket.write_all(&[7; 65_536]).is_ok() {}
    });
    // Another program as reader: bash, at 100 kB/s.
    let script =
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; while head -c 10000 <&3 >/dev/null; do sleep 0.1; done");
    let mut child = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let explained = explain(home.path(), &["--pid", &pid, "--for", "3s", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    sender.join().unwrap();
    let flow = first_object(&explained);
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"application".into()), "{flow}");
}

#[test]
fn missing_and_idle_processes_are_reported() {
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["--pid", "4194305"], 66, &["there is no process 4194305"]);
    fails(home.path(), &["--pid", "0"], 64, &["--pid"]);
    fails(home.path(), &["--pid", "1", "--for", "0s"], 64, &["--for"]);
    let mut idle = Command::new("sleep").arg("20").spawn().unwrap();
    fails(
        home.path(),
        &["--pid", &idle.id().to_string(), "--for", "100ms"],
        66,
        &["has moved data", "--for"],
    );
    idle.kill().unwrap();
    idle.wait().unwrap();
}

/// Runs a program as an unprivileged user.
const UNPRIVILEGED: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Explains a process as an unprivileged user; checks that the error contains `words`.
fn refused_to_unprivileged(process: u32, words: &[&str]) {
    // A directory that every user may read.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("longhaul");
    fs::copy(env!("CARGO_BIN_EXE_longhaul"), &program).unwrap();
    let mut command = Command::new(UNPRIVILEGED[0]);
    command.args(&UNPRIVILEGED[1..]).arg(&program).args([
        "explain",
        "--pid",
        &process.to_string(),
        "--for",
        "1s",
    ]);
    let output = command.env("HOME", dir.path()).current_dir(dir.path()).output().unwrap();
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{messages}");
    assert!(words.iter().all(|word| messages.contains(word)), "{messages}");
    assert!(messages.contains("TCP_INFO") && messages.contains("would show what limits each"), "{messages}");
}

/// Returns whether the test is skipped: it needs root, to change its user.
fn skipped() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can become another user");
    }
    !is_root
}

#[test]
fn process_of_another_user_is_refused_with_the_missing_evidence() {
    if skipped() {
        return;
    }
    let own = std::process::id();
    refused_to_unprivileged(own, &[&format!("process {own}"), "belongs to another user", "as root"]);
}

#[test]
fn process_in_another_network_is_read_by_root_and_refused_to_its_own_user() {
    if skipped() {
        return;
    }
    let mut command = Command::new("unshare");
    command.arg("--net").args(UNPRIVILEGED).args(["sleep", "30"]);
    let mut process = Running(command.stdin(Stdio::null()).spawn().unwrap());
    let pid = process.0.id();
    // The process has entered its namespace once it is `sleep`.
    let is_there = || {
        fs::read(Path::new("/proc").join(pid.to_string()).join("comm")).is_ok_and(|name| name == b"sleep\n")
    };
    while !is_there() {
        assert_eq!(process.0.try_wait().unwrap(), None, "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    refused_to_unprivileged(pid, &[&format!("network namespace of process {pid}"), "run this as root"]);
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["--pid", &pid.to_string(), "--for", "100ms"], 66, &["has moved data"]);
}
