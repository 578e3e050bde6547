//! Files named by options: pipes with and without a writer, byte order marks, empty files.

use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::support::{File, Get, Server, content, get, same, sha256};

/// Creates a run beside a pipe without a writer.
fn with_pipe() -> Get {
    let run = get();
    mknodat(CWD, run.path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("pipe", run.path("pipe.meta4")).unwrap();
    run
}

const OPTIONS: [&[&str]; 8] = [
    &["-i", "pipe"],
    &["--netrc-file", "pipe"],
    &["--load-cookies", "pipe"],
    &["-b", "pipe"],
    &["--checksum-file", "pipe"],
    &["--token", "pipe"],
    &["--user", "ann", "--password-file", "pipe"],
    &["pipe.meta4"],
];

#[test]
fn pipe_without_a_writer_ends_with_the_commands_time() {
    let server = Server::of(File::new(content(1000, 110)));
    let url = server.url("/f");
    let limited = OPTIONS.map(|option| {
        let run = with_pipe().args(["--max-time", "300ms", "-o", "f/", &url]).args(option);
        (run.start(), run)
    });
    let only_source = with_pipe().args(["-i", "pipe"]);
    let only_source_ends = only_source.start();
    // Files that are read again for each server cannot be pipes.
    for option in ["--cacert", "--cert"] {
        with_pipe().args([&url, option, "pipe"]).run().fails(66, &["pipe"]);
    }
    for (running, _run) in limited {
        running.end().fails(75, &["pipe"]);
    }
    only_source_ends.end().fails(74, &["pipe", "no program writes to"]);
    assert!(server.requests().is_empty());
}

#[test]
fn pipe_without_a_writer_ends_on_a_signal() {
    let server = Server::of(File::new(content(1000, 111)));
    for option in &OPTIONS[..7] {
        let run = with_pipe().args([&server.url("/f")]).args(*option);
        let mut running = run.start();
        running.until_open(&run.path("pipe"));
        running.signal(Signal::TERM);
        assert!(!running.end().status.success(), "{option:?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn pipes_of_a_shell_and_files_with_a_byte_order_mark_are_read() {
    let file = File::new(content(1000, 112));
    let server = Server::of(file.clone());
    let (host, address) = (server.address.ip(), server.address.to_string());
    for (option, text, field, value) in [
        ("-i", server.url("/listed"), "host", &*address),
        (
            "-n --netrc-file",
            format!("machine {host} login ann password x"),
            "authorization",
            "Basic YW5uOng=",
        ),
        ("--token", "s3cret".to_owned(), "authorization", "Bearer s3cret"),
        ("-u ann --password-file", "x".to_owned(), "authorization", "Basic YW5uOng="),
        ("-b", format!("{host}\tFALSE\t/\tFALSE\t0\ta\tb"), "cookie", "a=b"),
        ("--checksum-file", format!("{}  f", sha256(&file.bytes)), "host", &address),
    ] {
        let url = (option != "-i").then(|| server.url("/f"));
        let pipe = format!("exec \"$0\" \"$@\" {option} <(sleep 0.2; cat text)");
        let marked =
            get().file("named", format!("\u{feff}{text}\r\n")).args(option.split(' ')).args(["named"]);
        let piped = get().file("text", format!("{text}\n")).through(&["bash", "-c", &pipe]);
        for run in [piped, marked] {
            let before = server.requests().len();
            let run = run.args(&url);
            let ended = run.run().ok();
            assert_eq!(server.requests()[before].field(field), Some(value), "{option}: {ended:?}");
            same(run.path(if url.is_some() { "f" } else { "listed" }), &file.bytes);
        }
    }
}

#[test]
fn list_without_a_url_is_an_error_where_nothing_else_is_named() {
    let server = Server::of(File::new(content(1000, 114)));
    for text in ["", "# later\n\n", "\u{feff}"] {
        let run = get().file("list", text).args(["-i", "list"]);
        run.run().fails(64, &["list", "holds no URL"]);
        let run = run.again(["-i", "list", &server.url("/f")]);
        let ended = run.run().ok();
        assert!(ended.stderr.contains("holds no URL"), "{ended:?}");
    }
    get().args(["-i", "-"]).run().fails(64, &["stdin holds no URL"]);
}
