//! Files named by options: pipes with and without a writer, byte order marks, empty files,
//! checksums.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use sha2::{Digest, Sha512};

use crate::support::{File, Get, Server, content, get, same, sha256};

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
    let netrc = format!("machine {host} login ann password x");
    for (option, text, field, value) in [
        ("-i", server.url("/listed"), "host", &*address),
        ("-n --netrc-file", netrc, "authorization", "Basic YW5uOng="),
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

#[test]
fn files_are_verified_by_the_lines_of_their_names() {
    let (one, two) = (content(300_000, 90), content(200_000, 91));
    let [first, second] = [&one, &two].map(|bytes| Server::of(File::new(bytes.clone())));
    let sha512: String = Sha512::digest(&two).iter().map(|byte| format!("{byte:02x}")).collect();
    let list =
        format!("{} *./pub/one.bin\nSHA512 (two.bin) = {sha512}\n{}  other\n", sha256(&one), "0".repeat(64));
    let run = get().file("SUMS", list).args(["--json", "--checksum-file", "SUMS"]);
    let run = run.args([first.url("/one.bin"), second.url("/two.bin")]);
    let done = run.run().ok().events("done");
    same(run.path("one.bin"), &one);
    same(run.path("two.bin"), &two);
    assert!(done.iter().all(|line| line["digest"].is_string()), "{done:?}");
    // The local name is used if the server's name is not in the list.
    let run = run.file("SUMS", format!("{}  other\n", sha256(&one)));
    run.again(["--checksum-file", "SUMS", "-o", "other", &first.url("/one.bin?id=1")]).run().ok();
    // Lines of b2sum, with and without -l, and of b3sum have as many digits as others, whatever the
    // list is called.
    let (b2, short) = (b2sum::<blake2::Blake2b512>(&one), b2sum::<blake2::Blake2b256>(&one));
    let b3 = blake3::hash(&one).to_hex().to_string();
    for (name, hex) in [("SUMS", &b2), ("SUMS", &short), ("SUMS", &b3), ("B2SUMS", &short), ("f.b3", &b3)] {
        let run = get().file(name, format!("{hex}  f\n")).args(["--checksum-file", name, &first.url("/f")]);
        run.fetches(&one);
        run.run().ok();
    }
    // Wrong bytes get no name.
    let run = get().file("SUMS", format!("{}  f\n", "a".repeat(64)));
    run.args(["--checksum-file", "SUMS", &first.url("/f")])
        .fails_resumably(65, &["has the checksum", "aaaa"]);
}

fn b2sum<D: Digest>(bytes: &[u8]) -> String {
    D::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn file_without_a_checksum_is_refused_before_anything_is_fetched() {
    let server = Server::of(File::new(content(10, 93)));
    let run = get().args(["--checksum-file", "SUMS", &server.url("/f"), &server.url("/g")]);
    let run = run.file("SUMS", format!("{}  f\n", sha256(b"one")));
    run.run().fails(64, &["SUMS", "/g", "no line has the name g"]);
    let run = run.file("SUMS", "<html>not found</html>");
    run.run().fails(64, &["SUMS", "no line of it is a checksum"]);
    fs::remove_file(run.path("SUMS")).unwrap();
    run.run().fails(66, &["SUMS"]);
    assert!(server.requests().is_empty());
}
