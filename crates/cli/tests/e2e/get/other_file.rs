//! Responses of another file than the partial one: the partial file is kept.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{
    File, Get, PartialFiles, Peer, Server, content, get, partial, partial_files, partial_with, same, skip,
};

const SIZE: usize = 600_000;
/// Bytes of a file of [`SIZE`] that [`partial`] has committed.
const COMMITTED: usize = 200_000;
/// Maximum bytes that are fetched again for comparison.
const SAMPLE: usize = 64 << 10;

#[test]
fn a_file_that_has_changed_since_ends_the_run_and_the_partial_file_stays() {
    let (run, server) = partial(&File::new(content(SIZE, 6)));
    let left = PartialFiles::of(&run);
    for (size, streams) in [(SIZE, "1"), (SIZE, "4"), (50_000, "1"), (900_000, "4"), (0, "1")] {
        let new = File {
            etag: Some("\"v2\""),
            fields: "Content-Type: application/x-new\r\n".to_owned(),
            ..File::new(content(size, 7))
        };
        server.mend(new.clone());
        let again = fresh_run(&left).args(["--streams", streams, "-o", "f", &server.url("/f")]);
        let ended = again.run().fails(
            65,
            &["f.longhaul-part", "v1", "v2", "application/x-new", &format!("{size} bytes"), "--no-resume"],
        );
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        left.is_kept(&again);
        let again = again.args(["--no-resume"]);
        again.run().ok();
        same(again.path("f"), &new.bytes);
        assert_eq!(partial_files(again.dir()), [""; 0]);
    }
}

#[test]
fn parts_of_a_changed_file_are_refused_with_and_without_if_range() {
    let (run, server) = partial(&File::new(content(SIZE, 8)));
    let left = PartialFiles::of(&run);
    // The new file has equal size, is larger, or is shorter than the partial file, so that the range is unsatisfiable.
    for size in [SIZE, 900_000, 1000] {
        let new = File { etag: Some("\"v2\""), ..File::new(content(size, 9)) };
        server.change(move |peer| {
            peer.serve_with(|mut request| {
                request.head = request.head.replace("If-Range", "X-Ignored");
                new.answer(&request)
            });
        });
        run.run().fails(65, &["f.longhaul-part", "--no-resume"]);
        left.is_kept(&run);
    }
}

#[test]
fn stray_page_on_resume_ends_the_run_and_the_partial_file_stays() {
    let file = File::new(content(SIZE, 1));
    let (run, server) = partial(&file);
    let left = PartialFiles::of(&run);
    let page = "<html>please log in</html>";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n";
    let long = "x".repeat(SIZE);
    for (answer, shown) in [
        (format!("{head}Content-Length: 26\r\n\r\n{page}"), "26 bytes"),
        (format!("{head}ETag: \"page\"\r\nContent-Length: 26\r\n\r\n{page}"), "26 bytes"),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n1a\r\n{page}\r\n0\r\n\r\n"), "unknown length"),
        (format!("{head}Connection: close\r\n\r\n{page}"), "unknown length"),
        (format!("{head}Content-Length: {SIZE}\r\n\r\n{long}"), "600000 bytes"),
    ] {
        for streams in ["1", "4"] {
            let answer = answer.clone();
            server.change(move |peer| {
                peer.read_request();
                peer.send(&answer);
                peer.close();
            });
            let again = fresh_run(&left).args(["--streams", streams, "-o", "f", &server.url("/f")]);
            again.run().fails(65, &["f.longhaul-part", "text/html", shown, "--no-resume"]);
            left.is_kept(&again);
            server.mend(file.clone());
            let again = again.args(["--json"]);
            assert_eq!(again.run().ok().done()["resumed"], COMMITTED);
            same(again.path("f"), &file.bytes);
        }
    }
}

/// A session expires on one of several connections: the page is not used, and its range is requested again.
#[test]
fn part_of_a_transfer_killed_after_a_second_is_kept_from_a_stray_page() {
    let file = File::new(content(100 << 20, 3));
    let server = Server::new(move |peer| peer.serve_at(40_000_000, &file));
    let run = get().args(["-o", "f", &server.url("/f")]);
    let running = run.start();
    std::thread::sleep(Duration::from_millis(1500));
    running.signal(Signal::KILL);
    running.end();
    let left = PartialFiles::of(&run);
    server.change(|peer| {
        while peer.read_request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\npage");
        }
    });
    run.run().fails(65, &["f.longhaul-part", "text/html", "4 bytes"]);
    left.is_kept(&run);
}

#[test]
fn login_page_in_mid_transfer_is_not_used() {
    let file = File::new(content(24 << 20, 2));
    let page = "<html>please log in</html>";
    for (etag, args) in [(Some("\"v1\""), &[][..]), (None, &["--assume-unchanged"])] {
        for length in ["Content-Length: 26\r\n", "Connection: close\r\n"] {
            let served = File { etag, ..file.clone() };
            let pages = Arc::new(AtomicUsize::new(0));
            let sent = pages.clone();
            let server = Server::new(move |peer| {
                let Some(request) = peer.read_request() else { return };
                // The first request on any connection except the first.
                if peer.number > 0 && sent.fetch_add(1, Ordering::SeqCst) == 0 {
                    peer.send(format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{length}\r\n{page}"));
                    return peer.close();
                }
                let (head, body) = served.answer(&request);
                peer.send(head);
                peer.trickle(body, 20_000_000);
                peer.serve_at(20_000_000, &served);
            });
            let run = get().args(["--streams", "4", "-o", "f", &server.url("/f")]).args(args);
            let ended = run.run().ok();
            assert!(!ended.stderr.contains("going on without"), "{ended:?}");
            same(run.path("f"), &file.bytes);
            assert!(pages.load(Ordering::SeqCst) > 0);
        }
    }
}

#[test]
fn login_page_after_a_break_is_not_used() {
    let file = File::new(content(SIZE, 3));
    for (etag, args) in [(Some("\"v1\""), &[][..]), (None, &["--assume-unchanged"])] {
        let served = File { etag, ..file.clone() };
        let server = Server::new(move |peer| match peer.number {
            0 => send_part(peer, &served, COMMITTED),
            1 | 2 => {
                peer.read_request();
                peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nlog?");
                peer.close();
            }
            _ => peer.serve(&served),
        });
        let run = get().args(["--streams", "1", "-o", "f", &server.url("/f")]).args(args);
        run.run().ok();
        same(run.path("f"), &file.bytes);
        let asked_again =
            server.requests()[1..].iter().all(|request| request.range(SIZE) == Some((COMMITTED, SIZE)));
        assert!(asked_again, "{:?}", server.requests());
    }
}

#[test]
fn a_file_that_shrinks_ends_with_what_is_there_kept() {
    let file = File::new(content(SIZE, 4));
    let shorter = File { etag: Some("\"v2\""), ..File::new(content(1000, 4)) };
    let served = file.clone();
    let server = Server::new(move |peer| match peer.number {
        0 => send_part(peer, &served, COMMITTED),
        _ => peer.serve(&shorter),
    });
    let run = get().args(["--streams", "1", "-o", "f", &server.url("/f")]);
    let ended =
        run.run().fails(65, &[&server.url("/f"), "changed on the server", "1000 bytes", "--no-resume"]);
    assert!(ended.time < Duration::from_secs(10), "{ended:?}");
    let left = PartialFiles::of(&run);
    left.is_kept(&run);
    server.mend(file.clone());
    let run = run.args(["--json"]);
    assert_eq!(run.run().ok().done()["resumed"], COMMITTED);
    same(run.path("f"), &file.bytes);
}

/// Some servers give files of equal size and time one ETag: their parts must never be joined.
#[test]
fn fresh_url_with_other_bytes_under_an_equal_etag_ends_the_run() {
    let (first, second) = (File::new(content(SIZE, 10)), File::new(content(SIZE, 11)));
    let (run, server) = partial(&first);
    let left = PartialFiles::of(&run);
    for ranges in [true, false] {
        server.mend(File { ranges, ..second.clone() });
        for path in ["/g", "/f?id=2"] {
            let again = fresh_run(&left).args(["-o", "f", &server.url(path)]);
            again.run().fails(65, &["f.longhaul-part", "--no-resume"]);
            left.is_kept(&again);
        }
    }
}

/// An expired link is replaced by a fresh one, which resumes if size, strong ETag and compared bytes are equal.
#[test]
fn fresh_url_of_the_same_file_resumes() {
    let file = File::new(content(SIZE, 12));
    let (run, server) = partial(&file);
    let left = PartialFiles::of(&run);
    let elsewhere = Server::on(TcpListener::bind("127.0.0.2:0").unwrap(), {
        let file = file.clone();
        move |peer| peer.serve(&file)
    });
    server.mend(file.clone());
    for (server, path) in [(&server, "/f?token=2"), (&server, "/g"), (&elsewhere, "/f")] {
        for streams in ["1", "4"] {
            let again = fresh_run(&left).args(["--json", "--streams", streams, "-o", "f", &server.url(path)]);
            let before = server.requests().len();
            let ended = again.run().ok();
            assert_eq!(ended.done()["resumed"], COMMITTED);
            same(again.path("f"), &file.bytes);
            assert_eq!(partial_files(again.dir()), [""; 0]);
            let asks = server.requests().split_off(before);
            let ranges: Vec<_> = asks.iter().map(|request| request.range(SIZE).unwrap()).collect();
            let (samples, rest): (Vec<_>, Vec<_>) = ranges.iter().partition(|(start, _)| *start < COMMITTED);
            assert_eq!(samples, [(COMMITTED - SAMPLE, COMMITTED)], "{ranges:?}");
            assert_eq!(
                rest.iter().map(|(start, end)| end - start).sum::<usize>(),
                SIZE - COMMITTED,
                "{ranges:?}: {ended:?}"
            );
        }
    }
}

#[test]
fn fresh_url_is_remembered_for_the_next_break() {
    let file = File::new(content(SIZE, 13));
    let (run, server) = partial(&file);
    let served = file.clone();
    server.change(move |peer| {
        // The whole sample, and a part of the missing range.
        while let Some(request) = peer.read_request() {
            let (head, body) = served.answer(&request);
            peer.send(head);
            if body.len() > SAMPLE {
                peer.send(&body[..COMMITTED]);
                return peer.close();
            }
            peer.send(body);
        }
    });
    let run = run.again(["--retries", "0", "--json", "-o", "f", &server.url("/f?token=2")]);
    run.run().fails(75, &["closed the connection early"]);
    server.mend(file.clone());
    let before = server.requests().len();
    assert_eq!(run.run().ok().done()["resumed"], 2 * COMMITTED);
    assert_eq!(server.requests().len(), before + 1, "a URL that is known needs no sample");
    same(run.path("f"), &file.bytes);
}

/// A name with two addresses, one of which serves another version of the file: the other address is used.
#[test]
fn address_that_serves_another_file_is_avoided() {
    let (file, stale) = (File::new(content(SIZE, 14)), File::new(content(SIZE, 15)));
    let stale = File { etag: Some("\"old\""), ..stale };
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = first.local_addr().unwrap().port();
    let Ok(second) = TcpListener::bind(("127.0.0.2", port)) else { return skip("127.0.0.2 cannot be bound") };
    let served = file.clone();
    // Two backends share the first address.
    let first = Server::on(first, move |peer| match peer.number {
        0 => send_part(peer, &served, COMMITTED),
        _ => peer.serve(&stale),
    });
    let served = file.clone();
    let second = Server::on(second, move |peer| peer.serve(&served));
    let run = get().args(["--json", "--streams", "1", "-o", "f", &format!("http://twice:{port}/f")]);
    let Some(run) = with_hosts(run, "127.0.0.1 twice\n127.0.0.2 twice\n") else { return };
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    assert!(!first.requests().is_empty() && !second.requests().is_empty(), "{ended:?}");
    assert!(first.requests().len() < 8, "{} requests", first.requests().len());
    assert!(ended.time < Duration::from_secs(6), "{ended:?}");
}

#[test]
fn assumed_unchanged_is_still_held_to_the_size() {
    let file = File { etag: None, ..File::new(content(SIZE, 16)) };
    let (run, server) = partial_with(&["--assume-unchanged"], &file);
    let left = PartialFiles::of(&run);
    server.mend(File { etag: None, ..File::new(content(1000, 17)) });
    run.run().fails(65, &["f.longhaul-part", "--no-resume"]);
    left.is_kept(&run);
}

/// Creates a run in a directory with an earlier run's files.
fn fresh_run(left: &PartialFiles) -> Get {
    let run = get();
    left.put_into(&run);
    run
}

/// Answers one request with the first `len` bytes of its body, and closes.
fn send_part(peer: &mut Peer, file: &File, len: usize) {
    let Some(request) = peer.read_request() else { return };
    let (head, body) = file.answer(&request);
    peer.send(head);
    peer.send(&body[..len.min(body.len())]);
    peer.close();
}

/// Runs with these hosts in a private mount namespace; `None` if not permitted.
fn with_hosts(run: Get, hosts: &str) -> Option<Get> {
    let flags: &[&str] = if rustix::process::geteuid().is_root() { &["-m"] } else { &["-rm"] };
    std::fs::write(run.path("hosts"), hosts).unwrap();
    let mount = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(flags).args(words).current_dir(run.dir());
        command.output().is_ok_and(|output| output.status.success())
    };
    if !mount(&["mount", "--bind", "hosts", "/etc/hosts"]) {
        skip("no mount namespace may be made here");
        return None;
    }
    let script = "mount --bind hosts /etc/hosts && exec \"$@\"";
    let words: Vec<&str> =
        ["unshare"].iter().chain(flags).copied().chain(["sh", "-c", script, "sh"]).collect();
    Some(run.through(&words))
}
