//! Outputs without a reader must not block a transfer.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;

use crate::support::{File, Running, Server, content, get, response, same, skip};

/// Returns the read and the write end of a full pipe.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&write, &[0; 4096]).is_ok() {}
    while rustix::io::write(&write, &[0]).is_ok() {}
    fcntl_setfl(&write, OFlags::empty()).unwrap();
    (read, write)
}

/// A server that takes about half a second for a file.
fn slow(file: &File) -> Server {
    Server::slow(6_000_000, file)
}

#[test]
fn a_stdout_that_is_not_read_holds_up_no_transfer() {
    let file = File::new(content(3_000_000, 1));
    let server = slow(&file);
    let run = get().args(["--json", "-o", "f", &server.url("/f")]);
    let (_read, write) = full_pipe();
    let mut command = run.command();
    command.stdout(Stdio::from(write));
    assert_eq!(Running::new(command).end().ok().stderr, "");
    run.fetched(&file.bytes);
}

#[test]
fn a_stderr_that_is_not_read_holds_up_no_transfer_and_no_error() {
    let file = File::new(content(3_000_000, 2));
    let server = slow(&file);
    let missing = Server::answering(response("404 No", ""));
    for (url, code) in [(server.url("/f"), 0), (missing.url("/f"), 66)] {
        let run = get().args(["-vv", "-o", "f", &url]);
        let (_read, write) = full_pipe();
        let mut command = run.command();
        command.stderr(Stdio::from(write));
        let ended = Running::new(command).end();
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        if code == 0 {
            run.fetched(&file.bytes);
        }
    }
}

/// The state after Ctrl-S.
#[test]
fn a_terminal_that_is_stopped_holds_up_no_transfer() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script (util-linux) is not installed");
    }
    let file = File::new(content(3_000_000, 3));
    let server = slow(&file);
    let run = get();
    // The terminal is full before the transfer begins.
    let program = env!("CARGO_BIN_EXE_longhaul");
    let line = format!("touch begun; sleep 1; yes & sleep 1; {program} get -o f {}", server.url("/f"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(run.dir()).env("TERM", "xterm");
    command.env("SHELL", "/bin/sh").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running::new(command);
    running.until("the terminal is there", || run.path("begun").exists());
    running.signal(Signal::STOP);
    running.until("the file is complete", || run.path("f").exists());
    same(run.path("f"), &file.bytes);
}
