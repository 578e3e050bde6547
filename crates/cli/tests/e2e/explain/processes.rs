//! Running processes, observed from outside.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::explain::{explained, fails};
use crate::support::lab::{ran, wait_until};
use crate::support::running::Running;
use crate::support::skip;

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
    let child = Running(Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap());
    let flow = &explained(home.path(), &["--pid", &child.0.id().to_string(), "--for", "2s"])[0];
    drop(child);
    sender.join().unwrap();
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"application".into()), "{flow}");
}

#[test]
fn missing_and_idle_processes_are_reported() {
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["--pid", "4194305"], 66, &["there is no process 4194305"]);
    fails(home.path(), &["--pid", "0"], 64, &["--pid"]);
    fails(home.path(), &["--pid", "1", "--for", "0s"], 64, &["--for"]);
    let idle = Running(Command::new("sleep").arg("60").spawn().unwrap());
    let pid = idle.0.id().to_string();
    fails(home.path(), &["--pid", &pid, "--for", "100ms"], 66, &["has moved data", "--for"]);
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
    command.args(&UNPRIVILEGED[1..]).arg(&program).args(["explain", "--for", "1s"]);
    command.args(["--pid", &process.to_string()]).env("HOME", dir.path()).current_dir(dir.path());
    ran(command).fails(77, &[words, &["TCP_INFO", "would show what limits each"]].concat());
}

#[test]
fn process_of_another_user_or_network_is_refused_with_the_missing_evidence() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become another user");
    }
    let own = std::process::id();
    refused_to_unprivileged(own, &[&format!("process {own}"), "belongs to another user", "as root"]);

    // Root may read the network of a process, its own user may not.
    let mut command = Command::new("unshare");
    command.arg("--net").args(UNPRIVILEGED).args(["sleep", "120"]);
    let process = Running(command.stdin(Stdio::null()).spawn().unwrap());
    let pid = process.0.id();
    let comm = Path::new("/proc").join(pid.to_string()).join("comm");
    wait_until("it has entered its namespace", || fs::read(&comm).is_ok_and(|name| name == b"sleep\n"));
    refused_to_unprivileged(pid, &[&format!("network namespace of process {pid}"), "run this as root"]);
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["--pid", &pid.to_string(), "--for", "100ms"], 66, &["has moved data"]);
}
