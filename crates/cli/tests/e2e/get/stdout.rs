//! `get -o -`: a file to a pipe, in order.

use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};

use crate::support::{File, Get, Server, content, get, partial_files, same};

fn output(run: &Get) -> Output {
    run.command().output().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn file_is_written_to_a_pipe_in_order_without_partial_files() {
    let file = File::new(content(9_000_001, 40));
    let server = Server::of(file.clone());
    let digest = format!("sha256:{}", sha256(&file.bytes));
    let run = get().args(["-o", "-", "--checksum", &digest, &server.url("/f")]);
    let ended = output(&run);
    assert!(ended.status.success() && ended.stdout == *file.bytes, "{:?}", ended.status);
    let messages = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(messages.starts_with("stdout: 8.6 MiB") && messages.contains("limited by"), "{messages}");
    assert_eq!(partial_files(run.dir()), [""; 0]);
}

#[test]
fn tar_unpacks_what_arrives() {
    let run = get();
    fs::create_dir(run.path("from")).unwrap();
    let bytes = content(3_000_000, 41);
    fs::write(run.path("from/a"), &bytes).unwrap();
    fs::write(run.path("from/b"), b"b").unwrap();
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
fn wrong_digest_sets_the_exit_code() {
    let file = File::new(content(500_000, 42));
    let server = Server::of(file.clone());
    for wrong in [format!("sha256:{}", "0".repeat(64)), format!("blake3:{}", "0".repeat(64))] {
        let run = get().args(["-o", "-", "--checksum", &wrong, &server.url("/f")]);
        let ended = output(&run);
        let messages = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(65), "{messages}");
        assert!(
            messages.contains("stdout has the checksum") && messages.contains("throw it away"),
            "{messages}"
        );
        assert!(ended.stdout == *file.bytes);
    }
}

#[test]
fn stream_resumes_after_a_break_with_a_strong_validator() {
    let file = File::new(content(4_000_000, 43));
    let half = |peer: &mut crate::support::Peer, file: &File| {
        let request = peer.read_request().unwrap();
        let (head, body) = file.answer(&request);
        peer.send(head);
        peer.send(&body[..body.len() / 2]);
        peer.close();
    };
    let served = file.clone();
    let server = Server::new(move |peer| match peer.number {
        0 => half(peer, &served),
        _ => peer.serve(&served),
    });
    let ended = output(&get().args(["-o", "-", &server.url("/f")]));
    assert!(ended.status.success() && ended.stdout == *file.bytes, "{ended:?}");
    assert!(server.requests()[1].field("range").is_some_and(|range| !range.starts_with("bytes=0-")));
    // The output cannot be taken back: without a validator the file may have changed, and without ranges it restarts.
    for served in [File { etag: None, ..file.clone() }, File { ranges: false, ..file }] {
        let server = Server::new(move |peer| half(peer, &served));
        let ended = output(&get().args(["-o", "-", &server.url("/f")]));
        let messages = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(74), "{messages}");
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
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1000]).unwrap();
    drop(stdout);
    let ended = child.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(74), "{messages}");
    assert!(messages.contains("cannot write stdout: Broken pipe"), "{messages}");
}

#[test]
fn closed_stdout_is_an_error_before_a_request() {
    let server = Server::of(File::new(content(1000, 47)));
    let run = get().through(&["sh", "-c", "exec \"$@\" >&-", "sh"]).args(["-o", "-", &server.url("/f")]);
    run.run().fails(74, &["cannot write to standard output: it is closed"]);
    assert!(server.requests().is_empty());
}

#[test]
fn interrupt_ends_an_unread_stream() {
    let server = Server::of(File::new(content(9_000_000, 46)));
    let run = get().args(["-o", "-", &server.url("/f")]);
    let mut command = run.command();
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(10));
}
