//! Unwritable output is an error, reported once.

use std::process::{Command, Stdio};

use crate::support::{File, Server, content, get, same};

fn longhaul(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(args).stderr(Stdio::piped());
    command
}

#[test]
fn full_device_as_stdout_is_an_error() {
    let server = Server::of(File::new(content(1000, 1)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let get = ["get", "--json", "--no-memory", "-o", path.to_str().unwrap(), &server.url("/f")];
    for args in [&["completions", "bash"][..], &["config"], &["get", "--help"], &["--version"], &get] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = longhaul(args).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let errors = stderr.matches("cannot write to standard output: No space left").count();
        assert_eq!((output.status.code(), errors), (Some(74), 1), "{args:?}: {stderr}");
    }
    same(path, &content(1000, 1));
}

#[test]
fn closed_stdout_is_an_error() {
    let server = Server::of(File::new(content(1000, 2)));
    let run = get().through(&["sh", "-c", "exec \"$@\" >&-", "sh"]);
    let run = run.args(["--json", "-o", "f", &server.url("/f")]);
    run.run().fails(74, &["cannot write to standard output: it is closed"]);
    same(run.path("f"), &content(1000, 2));
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
