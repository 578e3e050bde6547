//! `get -o -`: a file to a pipe, in order.

use std::fs;
use std::io::{PipeReader, Read};
use std::process::Command;

use rustix::process::Signal;

use crate::support::{File, Get, Server, content, get, partial_files, same, sha256};

/// Runs, and returns the exit code, the bytes on stdout and the messages; fails if files are left.
fn output(run: &Get) -> (Option<i32>, Vec<u8>, String) {
    let output = run.command().output().unwrap();
    assert_eq!(partial_files(run.dir()), [""; 0]);
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn file_is_written_to_a_pipe_in_order_without_partial_files() {
    let file = File::new(content(9_000_001, 40));
    let server = Server::of(file.clone());
    let (sum, zeros) = (sha256(&file.bytes), "0".repeat(64));
    for (digest, code, words) in [
        (format!("sha256:{sum}"), 0, ["stdout: 8.6 MiB", "limited by"]),
        (format!("sha256:{zeros}"), 65, ["stdout has the checksum", "throw it away"]),
        (format!("blake3:{zeros}"), 65, ["stdout has the checksum", "throw it away"]),
    ] {
        let (found, bytes, text) = output(&get().args(["-o", "-", "--checksum", &digest, &server.url("/f")]));
        assert!(found == Some(code) && bytes == *file.bytes, "{digest}: {found:?} {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{digest}: {text}");
    }
}

#[test]
fn tar_unpacks_what_arrives() {
    let bytes = content(3_000_000, 41);
    let run = get().file("from/a", &bytes).file("from/b", b"b");
    let packed = Command::new("tar").args(["c", "from"]).current_dir(run.dir()).output().unwrap();
    let server = Server::of(File::new(packed.stdout));
    fs::rename(run.path("from"), run.path("source")).unwrap();
    let line = format!("{} get -q -o - {} | tar x", env!("CARGO_BIN_EXE_longhaul"), server.url("/f.tar"));
    let unpacked = Command::new("sh").args(["-c", &line]).current_dir(run.dir()).output().unwrap();
    assert!(unpacked.status.success() && unpacked.stderr.is_empty(), "{unpacked:?}");
    same(run.path("from/a"), &bytes);
    same(run.path("from/b"), b"b");
}

#[test]
fn stream_resumes_after_a_break_with_a_strong_validator() {
    let file = File::new(content(4_000_000, 43));
    let half = 2_000_000;
    let server = Server::closing(&file, half, 1);
    let (code, bytes, messages) = output(&get().args(["-o", "-", &server.url("/f")]));
    assert!(code == Some(0) && bytes == *file.bytes, "{messages}");
    assert!(server.requests()[1].field("range").is_some_and(|range| !range.starts_with("bytes=0-")));
    // The output cannot be taken back: without a validator the file may have changed, and without
    // ranges it restarts.
    for served in [File { etag: None, ..file.clone() }, File { ranges: false, ..file }] {
        let server = Server::closing(&served, half, usize::MAX);
        let (code, _, messages) = output(&get().args(["-o", "-", &server.url("/f")]));
        assert_eq!(code, Some(74), "{messages}");
        assert!(messages.contains("cannot start over") && messages.contains("stdout"), "{messages}");
    }
}

#[test]
fn stream_refuses_unsupported_options() {
    let server = Server::of(File::new(content(10, 44)));
    let (url, other) = (server.url("/f"), server.url("/g"));
    for (args, word) in [
        (vec![other.as_str()], "one file"),
        (vec!["--json"], "--json"),
        (vec!["--streams", "4"], "--streams"),
        (vec!["--verify", "disk"], "--verify disk"),
        (vec!["--if-newer"], "--if-newer"),
        (vec!["-r"], "one file"),
    ] {
        let ended = get().args(["-o", "-", &url]).args(&args).run().fails(64, &["stdout", word]);
        assert_eq!(ended.stdout, "");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn closed_pipe_ends_the_transfer() {
    let server = Server::of(File::new(content(9_000_000, 45)));
    let run = get().args(["-o", "-", &server.url("/f")]);
    let mut child = run.command().spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 1000]).unwrap();
    let ended = child.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(74), "{messages}");
    assert!(messages.contains("cannot write stdout: Broken pipe"), "{messages}");
}

#[test]
fn closed_stdout_is_an_error_before_a_request() {
    let server = Server::of(File::new(content(1000, 47)));
    for args in [&["-o", "-", &server.url("/f")][..], &["--help"]] {
        let run = get().through(&["sh", "-c", "exec \"$@\" >&-", "sh"]).args(args);
        run.run().fails(74, &["cannot write to standard output: it is closed"]);
    }
    assert!(server.requests().is_empty());
}

fn is_full(reader: &PipeReader) -> bool {
    let held = rustix::io::ioctl_fionread(reader).unwrap();
    held >= rustix::pipe::fcntl_getpipe_size(reader).unwrap() as u64
}

#[test]
fn interrupt_ends_an_unread_stream() {
    let server = Server::of(File::new(content(9_000_000, 46)));
    let run = get().args(["-o", "-", &server.url("/f")]);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut running = run.start_with(|command| command.stdout(writer));
    running.until("the pipe is full", || is_full(&reader));
    running.signal(Signal::INT);
    assert_eq!(running.end().status.code(), Some(130));
}
