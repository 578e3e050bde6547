//! Outputs that are not read block no transfer, and those that cannot be written are an error,
//! reported once.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;

use crate::support::{File, Running, Server, content, get, longhaul, response, same, skip};

fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&write, &[0; 4096]).is_ok() {}
    while rustix::io::write(&write, &[0]).is_ok() {}
    fcntl_setfl(&write, OFlags::empty()).unwrap();
    (read, write)
}

/// Sends a file in about half a second.
const RATE: usize = 6_000_000;

#[test]
fn an_output_that_is_not_read_holds_up_no_transfer_and_no_error() {
    let file = File::new(content(3_000_000, 1));
    let (server, missing) = (Server::slow(RATE, &file), Server::answering(response("404 No", "")));
    for (option, url, code) in
        [("--json", server.url("/f"), 0), ("-vv", server.url("/f"), 0), ("-vv", missing.url("/f"), 66)]
    {
        let run = get().args([option, "-o", "f", &url]);
        let (_read, write) = full_pipe();
        let running = run.start_with(|command| match option {
            "--json" => command.stdout(write),
            _ => command.stderr(write),
        });
        let ended = running.end();
        assert_eq!((ended.status.code(), &*ended.stderr), (Some(code), ""), "{option}: {ended:?}");
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
    let server = Server::slow(RATE, &file);
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

#[test]
fn full_device_as_stdout_is_an_error() {
    let server = Server::of(File::new(content(1000, 1)));
    let (url, help) = (server.url("/f"), ["--help"]);
    let fetch = ["--json", "--no-memory", "-o", "f", &url];
    for (command, args) in
        [("completions", &["bash"][..]), ("config", &[]), ("get", &help), ("--version", &[]), ("get", &fetch)]
    {
        let run = longhaul(command).args(args);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = run.start_with(|command| command.stdout(full)).end();
        let errors = ended.stderr.matches("cannot write to standard output: No space left").count();
        assert_eq!((ended.status.code(), errors), (Some(74), 1), "{command} {args:?}: {ended:?}");
        assert!(args != fetch || fs::read(run.path("f")).unwrap() == content(1000, 1));
    }
}

#[test]
fn reader_that_closes_the_pipe_is_no_error() {
    for (command, arg) in [("completions", "bash"), ("get", "--help")] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = longhaul(command).args([arg]).start_with(|command| command.stdout(writer)).end().ok();
        assert_eq!(ended.stderr, "");
    }
}
