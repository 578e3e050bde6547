//! Responses of another file than the partial one: the partial file is kept.

use std::net::TcpListener;

use crate::support::{
    File, Gate, PartialFiles, Server, content, get, in_own_mounts, partial, partial_with, response, skip,
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
        let again = left.run().args(["--streams", streams, "-o", "f", &server.url("/f")]);
        let size = format!("{size} bytes");
        let words = ["f.longhaul-part", "v1", "v2", "application/x-new", &size, "--no-resume"];
        let ended = again.run().fails(65, &words);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        left.is_kept(&again);
        again.args(["--no-resume"]).fetches(&new.bytes);
    }
}

#[test]
fn parts_of_a_changed_file_are_refused_with_and_without_if_range() {
    let (run, server) = partial(&File::new(content(SIZE, 8)));
    let left = PartialFiles::of(&run);
    // The new file has equal size, is larger, or is shorter than the partial file, so that the
    // range is unsatisfiable.
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
    // Without validators, only the size shows the change.
    let (run, server) =
        partial_with(&["--assume-unchanged"], &File { etag: None, ..File::new(content(SIZE, 16)) });
    let left = PartialFiles::of(&run);
    server.mend(File { etag: None, ..File::new(content(1000, 17)) });
    run.run().fails(65, &["f.longhaul-part", "--no-resume"]);
    left.is_kept(&run);
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
            server.change(move |peer| peer.answer(&answer));
            let again = left.run().args(["--streams", streams, "-o", "f", &server.url("/f")]);
            again.run().fails(65, &["f.longhaul-part", "text/html", shown, "--no-resume"]);
            left.is_kept(&again);
            server.mend(file.clone());
            assert_eq!(again.args(["--json"]).fetches(&file.bytes).done()["resumed"], COMMITTED);
        }
    }
}

/// A session expires on one of several connections: the page is not used, and its range is
/// requested again. The first connection sends the rest of its range after the page was sent.
#[test]
fn login_page_in_mid_transfer_is_not_used() {
    let file = File::new(content(24 << 20, 2));
    for (etag, args) in [(Some("\"v1\""), &[][..]), (None, &["--assume-unchanged"])] {
        for length in ["Content-Length: 26\r\n", "Connection: close\r\n"] {
            let served = File { etag, ..file.clone() };
            let page = Gate::default();
            let sent = page.clone();
            let server = Server::new(move |peer| {
                // The first request on any connection except the first.
                if peer.number > 0 && sent.open() {
                    peer.answer(format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{length}\r\n<html>please log in</html>"
                    ));
                } else {
                    peer.serve_after(1 << 20, &sent, &served);
                }
            });
            let run = get().args(["--streams", "4", "-o", "f", &server.url("/f")]).args(args);
            let ended = run.fetches(&file.bytes);
            assert!(page.is_open() && !ended.stderr.contains("going on without"), "{ended:?}");
        }
    }
}

/// A page is requested again, another version of the file ends the transfer.
#[test]
fn login_page_or_other_file_after_a_break_is_not_used() {
    let file = File::new(content(SIZE, 3));
    for (etag, args) in [(Some("\"v1\""), &[][..]), (None, &["--assume-unchanged"])] {
        let served = File { etag, ..file.clone() };
        let server = Server::new(move |peer| match peer.number {
            0 => peer.break_off(&served, COMMITTED),
            1 | 2 => peer.answer(response("200 OK\r\nContent-Type: text/html", "log?")),
            _ => peer.serve(&served),
        });
        get().args(["--streams", "1", "-o", "f", &server.url("/f")]).args(args).fetches(&file.bytes);
        let asks = server.requests();
        assert!(asks[1..].iter().all(|ask| ask.range(SIZE) == Some((COMMITTED, SIZE))), "{asks:?}");
    }
    let (shorter, served) = (File { etag: Some("\"v2\""), ..File::new(content(1000, 4)) }, file.clone());
    let server = Server::new(move |peer| match peer.number {
        0 => peer.break_off(&served, COMMITTED),
        _ => peer.serve(&shorter),
    });
    let run = get().args(["--streams", "1", "-o", "f", &server.url("/f")]);
    run.fails_resumably(65, &[&server.url("/f"), "changed on the server", "1000 bytes", "--no-resume"]);
    server.mend(file.clone());
    assert_eq!(run.args(["--json"]).fetches(&file.bytes).done()["resumed"], COMMITTED);
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
            let again = left.run().args(["-o", "f", &server.url(path)]);
            again.run().fails(65, &["f.longhaul-part", "--no-resume"]);
            left.is_kept(&again);
        }
    }
}

/// An expired link is replaced by a fresh one, which resumes if size, strong ETag and compared
/// bytes are equal.
#[test]
fn fresh_url_of_the_same_file_resumes() {
    let file = File::new(content(SIZE, 12));
    let (run, server) = partial(&file);
    let left = PartialFiles::of(&run);
    let served = file.clone();
    let elsewhere = Server::on(TcpListener::bind("127.0.0.2:0").unwrap(), move |peer| peer.serve(&served));
    server.mend(file.clone());
    for (server, path) in [(&server, "/f?token=2"), (&server, "/g"), (&elsewhere, "/f")] {
        for streams in ["1", "4"] {
            let again = left.run().args(["--json", "--streams", streams, "-o", "f", &server.url(path)]);
            let before = server.requests().len();
            let ended = again.fetches(&file.bytes);
            assert_eq!(ended.done()["resumed"], COMMITTED);
            let asks = server.requests().split_off(before);
            let ranges: Vec<_> = asks.iter().map(|request| request.range(SIZE).unwrap()).collect();
            let (samples, rest): (Vec<_>, Vec<_>) = ranges.iter().partition(|(start, _)| *start < COMMITTED);
            assert_eq!(samples, [(COMMITTED - SAMPLE, COMMITTED)], "{ranges:?}");
            let fetched: usize = rest.iter().map(|(start, end)| end - start).sum();
            assert_eq!(fetched, SIZE - COMMITTED, "{ranges:?}: {ended:?}");
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
    run.fails_resumably(75, &["closed the connection early"]);
    server.mend(file.clone());
    let before = server.requests().len();
    assert_eq!(run.fetches(&file.bytes).done()["resumed"], 2 * COMMITTED);
    assert_eq!(server.requests().len(), before + 1, "a URL that is known needs no sample");
}

/// A name with two addresses, one of which serves another version of the file: the other address is
/// used.
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
        0 => peer.break_off(&served, COMMITTED),
        _ => peer.serve(&stale),
    });
    let served = file.clone();
    let second = Server::on(second, move |peer| peer.serve(&served));
    let run = get().args(["--json", "--streams", "1", "-o", "f", &format!("http://twice:{port}/f")]);
    let run = run.file("hosts", "127.0.0.1 twice\n127.0.0.2 twice\n");
    let script = "mount --bind hosts /etc/hosts && exec \"$@\"";
    let Some(run) = in_own_mounts(run, script) else { return };
    let ended = run.fetches(&file.bytes);
    assert!((1..8).contains(&first.requests().len()) && !second.requests().is_empty(), "{ended:?}");
}
