//! Bodies: truncated, slow, too long, of unknown length.

use std::time::Duration;

use crate::support::{File, Server, content, get, partial_files, same};

#[test]
fn small_files() {
    for size in [0, 1, 4095, 4096, 4097] {
        let file = File::new(content(size, 1));
        let server = Server::of(file.clone());
        for writer in ["auto", "direct", "mmap", "buffered"] {
            for streams in ["1", "8"] {
                let run = get().args(["--writer", writer, "--streams", streams, "--json", &server.url("/f")]);
                let ended = run.run().ok();
                assert_eq!(ended.done()["bytes"], size, "{ended:?}");
                assert!(!ended.stdout.contains("no ranges"), "{ended:?}");
                same(run.path("f"), &file.bytes);
                assert_eq!(partial_files(run.dir()), [""; 0]);
            }
        }
    }
}

/// Closes the first `times` connections after `cut` bytes of a body.
fn closing(file: File, cut: usize, times: usize) -> Server {
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let (head, body) = file.answer(&request);
            peer.send(head);
            if peer.number < times && body.len() > cut {
                peer.send(&body[..cut]);
                return peer.close();
            }
            peer.send(body);
        }
    })
}

#[test]
fn single_early_close_is_resumed() {
    let file = File::new(content(3_000_000, 2));
    for (etag, streams) in [(Some("\"v1\""), "1"), (Some("\"v1\""), "4"), (None, "1")] {
        let file = File { etag, ..file.clone() };
        let server = closing(file.clone(), 1_000_001, 1);
        let run = get().args(["--streams", streams, "--json", &server.url("/f")]);
        let ended = run.run().ok();
        assert!(ended.stdout.contains("\"event\":\"retrying\""), "{ended:?}");
        same(run.path("f"), &file.bytes);
        assert!(
            server.requests()[1..].iter().all(|request| request.field("if-range") == etag),
            "{:?}",
            server.requests()
        );
    }
}

#[test]
fn repeated_early_close_is_a_resumable_error() {
    let file = File::new(content(3_000_000, 3));
    let server = closing(file.clone(), 100, usize::MAX);
    let run = get().args(["--retries", "2", "-o", "f", &server.url("/f")]);
    run.run().fails(75, &[&server.url("/f"), "closed the connection early, after 100 of"]);
    assert!(!run.path("f").exists());
    assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
    server.mend(file.clone());
    let run = run.again(["--json", "-o", "f", &server.url("/f")]);
    assert_eq!(run.run().ok().done()["resumed"], 300);
    same(run.path("f"), &file.bytes);
}

#[test]
fn closed_early_without_ranges_starts_over() {
    let file = File { ranges: false, ..File::new(content(3_000_000, 4)) };
    let server = closing(file.clone(), 1_000_001, 1);
    let run = get().args(["--json", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &file.bytes);
    // If every attempt fails, no unusable data is kept.
    let server = closing(file, 100_001, usize::MAX);
    let run = get().args(["--retries", "2", &server.url("/f")]);
    let ended = run.run().fails(75, &[&server.url("/f"), "closed the connection early"]);
    assert!(ended.time < Duration::from_secs(10));
    assert!(!run.path("f").exists());
}

#[test]
fn a_length_that_is_too_short_or_too_long() {
    let short = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more");
    let run = get().args(["-o", "f", &short.url("/f")]);
    run.run().ok();
    same(run.path("f"), b"hello");
    let long = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    let run = get().args(["--retries", "1", "-o", "f", &long.url("/f")]);
    run.run().fails(75, &[&long.url("/f"), "after 5 of 50 bytes"]);
    assert!(!run.path("f").exists());
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
    let run = get().args(["-o", "f", &long.url("/f")]);
    run.run().fails(65, &[&long.url("/f"), "in a file of 1000 bytes"]);
    assert!(!run.path("f").exists());
}

#[test]
fn one_byte_per_second_is_a_stall() {
    let file = File::new(content(100_000, 6));
    let served = file.clone();
    let server = Server::new(move |peer| {
        if peer.number > 0 {
            return peer.serve(&served);
        }
        let Some(request) = peer.read_request() else { return };
        let (head, body) = served.answer(&request);
        peer.send(head);
        peer.trickle(body, 50);
    });
    let run = get().args(["--stall-timeout", "1s", "--json", &server.url("/f")]);
    let ended = run.run().ok();
    assert!(ended.stdout.contains("taken for dead"), "{ended:?}");
    same(run.path("f"), &file.bytes);
    let slow = Server::new(move |peer| {
        peer.read_request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        peer.trickle(&[b'x'; 1000], 10);
    });
    let run = get().args(["--stall-timeout", "1s", "--retries", "0", "-o", "f", &slow.url("/f")]);
    run.run().fails(75, &[&slow.url("/f"), "taken for dead"]);
    assert!(!run.path("f").exists());
}

#[test]
fn unknown_length_until_the_connection_closes() {
    let bytes = content(700_000, 7);
    let mut answer = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\n".to_vec();
    answer.extend_from_slice(&bytes);
    let server = Server::answering(answer);
    for writer in ["auto", "direct", "buffered"] {
        let run = get().args(["--streams", "4", "--writer", writer, "--json", &server.url("/f")]);
        let ended = run.run().ok();
        assert_eq!(ended.done()["bytes"], 700_000);
        same(run.path("f"), &bytes);
    }
    let run = get().args(["--writer", "mmap", "-o", "f", &server.url("/f")]);
    run.run().fails(73, &["f.longhaul-part", "mmap", "--writer auto"]);
    assert_eq!(partial_files(run.dir()), [""; 0]);
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
fn chunked_whole() {
    let bytes = content(700_000, 8);
    for size in [999, 65_536, 700_000] {
        let server = Server::answering(chunked(&bytes, size));
        let run = get().args(["--streams", "2", &server.url("/f")]);
        run.run().ok();
        same(run.path("f"), &bytes);
    }
}

#[test]
fn truncated_chunked_body_is_never_complete() {
    let bytes = content(300_000, 9);
    let whole = chunked(&bytes, 100_000);
    for cut in [50, 5_000, 100_000, whole.len() - 20, whole.len() - 2] {
        let server = Server::answering(whole[..cut].to_vec());
        let run = get().args(["--retries", "1", "-o", "f", &server.url("/f")]);
        let ended = run.run();
        assert_eq!(ended.status.code(), Some(75), "{cut}: {ended:?}");
        assert!(ended.error().contains(&server.url("/f")) && !run.path("f").exists(), "{ended:?}");
        assert_eq!(partial_files(run.dir()), [""; 0], "unknown length: nothing that could be resumed");
    }
    // Truncated once, then complete: fetched again from the start, as the server has no ranges.
    let (cut, all) = (whole[..150_000].to_vec(), whole.clone());
    let server = Server::new(move |peer| {
        peer.read_request();
        peer.send(if peer.number == 0 { &cut } else { &all });
        peer.close();
    });
    let run = get().args(["-o", "f", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &bytes);
}

#[test]
fn chunks_that_break_the_coding() {
    for body in ["zz\r\nhello\r\n", "5\r\nhelloXX", "ffffffffffffffffff\r\n", "5\r\nhello\r\n-1\r\n"] {
        let server =
            Server::answering(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let run = get().args(["--retries", "0", "-o", "f", &server.url("/f")]);
        run.run().fails(76, &[&server.url("/f"), "chunked"]);
        assert!(!run.path("f").exists() && partial_files(run.dir()).is_empty());
    }
}
