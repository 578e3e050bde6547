//! Unwritable output is an error, reported once.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use crate::support::{Server, content};

fn longhaul(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(args).stderr(Stdio::piped());
    command
}

/// Runs the program with /dev/full as stdout.
fn to_full_device(args: &[&str]) -> Output {
    let full = File::options().write(true).open("/dev/full").unwrap();
    longhaul(args).stdout(full).output().unwrap()
}

#[test]
fn full_device_as_stdout_is_an_error() {
    let server = Server::of(crate::support::File::new(content(1000, 1)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let get = ["get", "--json", "--no-memory", "-o", path.to_str().unwrap(), &server.url("/f")];
    for args in [&["completions", "bash"][..], &["config"], &["get", "--help"], &["--version"], &get] {
        let output = to_full_device(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(74), "{args:?}: {stderr}");
        assert_eq!(
            stderr.matches("cannot write to standard output: No space left").count(),
            1,
            "{args:?}: {stderr}"
        );
    }
    assert_eq!(std::fs::read(&path).unwrap(), content(1000, 1), "the file itself is complete");
}

#[test]
fn closed_stdout_is_an_error() {
    let server = Server::of(crate::support::File::new(content(1000, 2)));
    let run = crate::support::get().through(&["sh", "-c", "exec \"$@\" >&-", "sh"]);
    let run = run.args(["--json", "-o", "f", &server.url("/f")]);
    run.run().fails(74, &["cannot write to standard output: it is closed"]);
    assert_eq!(std::fs::read(run.path("f")).unwrap(), content(1000, 2), "the file itself is complete");
    run.again(["--help"]).run().fails(74, &["it is closed"]);
}

#[test]
fn reader_that_closes_the_pipe_is_no_error() {
    for args in [["completions", "bash"], ["get", "--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = longhaul(&args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}
