//! Bodies: truncated, slow, too long, of unknown length.

use crate::support::{File, Get, Server, content, get};

fn to_f(server: &Server, args: &[&str]) -> Get {
    get().args(args).args(["-o", "f", &server.url("/f")])
}

#[test]
fn small_files() {
    for size in [0, 1, 4095, 4096, 4097] {
        let file = File::new(content(size, 1));
        let server = Server::of(file.clone());
        for writer in ["auto", "direct", "mmap", "buffered"] {
            for streams in ["1", "256"] {
                let run = get().args(["--writer", writer, "--streams", streams, "--json", &server.url("/f")]);
                let ended = run.fetches(&file.bytes);
                let done = ended.done();
                assert_eq!((&done["bytes"], &done["streams"]), (&size.into(), &1.into()), "{ended:?}");
                assert!(!ended.stdout.contains("no ranges"), "{ended:?}");
            }
        }
    }
}

#[test]
fn single_early_close_is_resumed() {
    let file = File::new(content(3_000_000, 2));
    for (etag, streams) in [(Some("\"v1\""), "1"), (Some("\"v1\""), "4"), (None, "1")] {
        let server = Server::closing(&File { etag, ..file.clone() }, 1_000_001, 1);
        let ended = to_f(&server, &["--streams", streams, "--json"]).fetches(&file.bytes);
        // Of several streams another one may have taken the rest before.
        assert!(streams != "1" || !ended.events("retrying").is_empty(), "{ended:?}");
        let asks = server.requests();
        assert!(asks[1..].iter().all(|request| request.field("if-range") == etag), "{asks:?}");
    }
}

#[test]
fn repeated_early_close_is_a_resumable_error() {
    let file = File::new(content(3_000_000, 3));
    let server = Server::closing(&file, 100, usize::MAX);
    let run = to_f(&server, &["--retries", "2"]);
    run.fails_resumably(75, &[&server.url("/f"), "closed the connection early, after 100 of"]);
    server.mend(file.clone());
    assert_eq!(run.args(["--json"]).fetches(&file.bytes).done()["resumed"], 300);
}

#[test]
fn closed_early_without_ranges_starts_over() {
    let file = File { ranges: false, ..File::new(content(3_000_000, 4)) };
    to_f(&Server::closing(&file, 1_000_001, 1), &[]).fetches(&file.bytes);
    // The first answer is in chunks, the next states its length.
    let server = Server::new(|peer| match peer.number {
        0 => peer.answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx"),
        _ => peer.answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    });
    to_f(&server, &[]).fetches(b"ok");
    let server = Server::closing(&file, 100_001, usize::MAX);
    to_f(&server, &["--retries", "2"]).fails_unnamed(75, &[&server.url("/f"), "closed the connection early"]);
}

#[test]
fn a_length_that_is_too_short_or_too_long() {
    let short = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more");
    to_f(&short, &[]).fetches(b"hello");
    let long = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    to_f(&long, &["--retries", "1"]).fails_without_files(75, &[&long.url("/f"), "after 5 of 50 bytes"]);
    // With ranges, the second response reveals the file's real size.
    let real = File::new(content(1000, 5));
    let long = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let (head, body) = real.answer(&request);
            peer.send(head.replace("Content-Length: 1000", "Content-Length: 2000"));
            peer.send(body);
            if request.field("range").is_none() {
                return peer.close();
            }
        }
    });
    to_f(&long, &[]).fails_unnamed(65, &[&long.url("/f"), "in a file of 1000 bytes"]);
}

#[test]
fn drip_is_a_stall() {
    let file = File::new(content(100_000, 6));
    let server = Server::with(&file, move |peer, served| {
        let rate = if peer.number > 0 { usize::MAX } else { 50 };
        peer.serve_at(rate, served);
    });
    let ended = to_f(&server, &["--stall-timeout", "1s", "--json"]).fetches(&file.bytes);
    assert!(ended.stdout.contains("taken for dead"), "{ended:?}");
    let slow = Server::slow(10, &File { etag: None, ..File::new(content(1000, 6)) });
    to_f(&slow, &["--stall-timeout", "1s", "--retries", "0"])
        .fails_without_files(75, &[&slow.url("/f"), "taken for dead"]);
    let head = Server::new(|peer| {
        peer.read_request();
        peer.trickle(&[b"HTTP/1.1 200 OK\r\nX-Slow: ", &[b'z'; 3000][..]].concat(), 100);
    });
    to_f(&head, &["--stall-timeout", "1s", "--retries", "0"])
        .fails_without_files(75, &[&head.url("/f"), "did not finish"]);
}

#[test]
fn unknown_length_until_the_connection_closes() {
    let bytes = content(700_000, 7);
    let server = Server::answering([b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\n", &bytes[..]].concat());
    for writer in ["auto", "direct", "buffered"] {
        let ended = to_f(&server, &["--streams", "4", "--writer", writer, "--json"]).fetches(&bytes);
        assert_eq!(ended.done()["bytes"], 700_000);
    }
    let run = to_f(&server, &["--writer", "mmap"]);
    run.fails_without_files(73, &["f.longhaul-part", "mmap", "--writer auto"]);
}

fn chunked(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut body = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in bytes.chunks(size) {
        body.extend_from_slice(format!("{:x};ext=1\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
    body
}

#[test]
fn truncated_chunked_body_is_never_complete() {
    let bytes = content(300_000, 9);
    for size in [999, 65_536, 300_000] {
        to_f(&Server::answering(chunked(&bytes, size)), &["--streams", "2"]).fetches(&bytes);
    }
    let whole = chunked(&bytes, 100_000);
    for cut in [50, 5_000, 100_000, whole.len() - 20, whole.len() - 2] {
        // Unknown length: nothing that could be resumed.
        let server = Server::answering(whole[..cut].to_vec());
        to_f(&server, &["--retries", "0"]).fails_without_files(75, &[&server.url("/f")]);
    }
    // Truncated once, then complete: fetched again from the start, as the server has no ranges.
    let server = Server::new(move |peer| {
        peer.answer(if peer.number == 0 { &whole[..150_000] } else { &whole });
    });
    to_f(&server, &[]).fetches(&bytes);
}
