//! Responses to uploads: early, wrong, or missing.

use std::fs::File;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::{
    MADE, RESUMABLE, UNKNOWN, answering, body, keep_waiting, method, permit, put_of, read, requests_of,
};
use crate::support::{HttpRequest, Peer, Server, content};

/// A server without resumable uploads, which answers a PUT by `play`, and a HEAD with this length.
fn plain(
    length: impl ToString,
    play: impl Fn(&mut Peer, &HttpRequest) -> String + Send + Sync + 'static,
) -> Server {
    let length = length.to_string();
    answering(move |peer, request| match method(request) {
        "PUT" => play(peer, request),
        "HEAD" => format!("200 OK\r\nContent-Length: {length}"),
        _ => UNKNOWN.to_owned(),
    })
}

#[test]
fn each_refusal_before_the_body_has_its_code_and_sends_nothing() {
    for (status, code, word) in [
        (400, 76, "right port"),
        (401, 77, "--token"),
        (403, 77, "another"),
        (404, 73, "directory must exist"),
        (409, 73, "directory must exist"),
        (413, 73, "smaller files"),
        (423, 75, "under way"),
        (501, 69, "--writable"),
        (507, 74, "disk is full"),
    ] {
        let (received, unwanted) = mpsc::channel();
        let server = plain(0, move |peer, _| {
            peer.send(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"));
            // Nothing but the connection's close may follow the head.
            received.send(read(peer, 1).len()).unwrap();
            String::new()
        });
        put_of(&content(1 << 20, 1), &["f", &server.url("/f")])
            .run()
            .fails(code, &[word, &status.to_string()]);
        let put = requests_of(&server, "PUT").remove(0);
        assert_eq!(
            ["expect", "content-length"].map(|name| put.field(name).unwrap()),
            ["100-continue", "1048576"]
        );
        assert_eq!(unwanted.recv(), Ok(0), "a body was sent");
    }
}

#[test]
fn reason_of_the_server_is_printed() {
    for (fields, body, shown) in [
        ("Content-Type: text/plain; charset=utf-8", "409 No: it sleeps\n".to_owned(), "409 No: it sleeps"),
        ("Content-Type: TEXT/PLAIN", "it\x1b[2J\nsleeps".to_owned(), "409 No: it [2J sleeps"),
        ("Content-Type: text/plain", "x".repeat(5000), &format!("409 No: {}", "x".repeat(1024))),
        ("Content-Type: text/plain", String::new(), "409 No: the directory must exist"),
        ("Content-Type: text/html", "<p>it sleeps".to_owned(), "409 No: the directory must exist"),
        ("X: y", "it sleeps".to_owned(), "409 No: the directory must exist"),
    ] {
        let answer = format!("HTTP/1.1 409 No\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let server = plain(0, move |peer, _| {
            peer.send(&answer);
            peer.close();
            String::new()
        });
        let ended = put_of(b"abc", &["f", &server.url("/f")]).run().fails(73, &[shown]);
        assert!(ended.error().len() < 1200, "{ended:?}");
    }
}

/// The put would take an hour: it ends only because it reads the response amid the body.
#[test]
fn refusal_amid_the_body_ends_the_put_with_its_reason() {
    for (resumable, reader, status, code, word) in [
        (false, "sendfile", 507, 74, "disk is full"),
        (false, "direct", 507, 74, "disk is full"),
        (true, "auto", 401, 77, "--token"),
        (true, "auto", 403, 77, "another"),
        (true, "auto", 413, 73, "smaller files"),
        (true, "auto", 507, 74, "disk is full"),
    ] {
        for drains in [true, false] {
            let server = answering(move |peer, request| match method(request) {
                "OPTIONS" if resumable => RESUMABLE.to_owned(),
                "HEAD" if resumable => "404 No".to_owned(),
                "OPTIONS" | "HEAD" => UNKNOWN.to_owned(),
                _ => {
                    permit(peer, request);
                    read(peer, 1 << 20);
                    peer.send(format!(
                        "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    ));
                    // Closing with unread bytes causes a reset.
                    if drains {
                        peer.close();
                    }
                    String::new()
                }
            });
            let run = put_of(b"", &["--reader", reader, "--limit", "20MB/s", "f", &server.url("/f")]);
            File::create(run.path("f")).unwrap().set_len(64 << 30).unwrap();
            let ended = run.run().fails(code, &[word, &status.to_string()]);
            let parts = requests_of(&server, if resumable { "PATCH" } else { "PUT" }).len();
            // After a reset the client queries the state before it sends the body again.
            assert!(parts == 1 || !drains && parts == 2, "{parts}: {ended:?}");
        }
    }
}

#[test]
fn body_is_sent_to_a_server_without_100_continue() {
    let bytes = content(300_000, 3);
    let sent = bytes.clone();
    let server = plain(bytes.len(), move |peer, _| {
        assert!(read(peer, sent.len()) == sent);
        // Too late, and useless by then.
        format!("100 Continue\r\n\r\nHTTP/1.1 {MADE}")
    });
    let ended = put_of(&bytes, &["f", &server.url("/f")]).run().ok();
    assert!(ended.time > Duration::from_millis(1900), "the body went out unasked: {ended:?}");
}

#[test]
fn success_without_the_whole_file_is_an_error() {
    for (is_read, length, words) in [
        (true, 5, ["5", "of 6"]),
        (true, 7, ["7", "of 6"]),
        // An older file of the same size passes the check of the size.
        (false, 6, ["before it has all of it"; 2]),
    ] {
        let server = plain(length, move |peer, request| {
            if is_read {
                body(peer, request);
            }
            MADE.to_owned()
        });
        put_of(b"abcdef", &["f", &server.url("/f")]).run().fails(76, &words);
    }
    const SIZE: usize = 8 << 20;
    // Claims after the first bytes to have the whole file.
    let early = |peer: &mut Peer, request: &HttpRequest| {
        permit(peer, request);
        read(peer, 1000);
    };
    let resuming = answering(move |peer, request| match method(request) {
        "OPTIONS" => RESUMABLE.to_owned(),
        "HEAD" => "404 No\r\nContent-Length: 0".to_owned(),
        _ => {
            early(peer, request);
            format!("204 Yes\r\nUpload-Offset: {SIZE}\r\nUpload-Complete: ?0")
        }
    });
    let putting = plain(SIZE, move |peer, request| {
        early(peer, request);
        MADE.to_owned()
    });
    for (server, options) in [
        (&resuming, &["--streams", "1"][..]),
        (&resuming, &["--streams", "1", "--no-verify"]),
        (&putting, &[]),
    ] {
        let run = put_of(&content(SIZE, 9), options).args(["--limit", "20MB/s", "f", &server.url("/f")]);
        run.run().fails(76, &["before it has all of it"]);
    }
}

/// An answer that never comes.
const SILENT: &str = "silent";

fn answer(peer: &mut Peer, text: &str) -> String {
    if text == SILENT {
        peer.stay_silent();
        return String::new();
    }
    text.to_owned()
}

#[test]
fn whole_body_and_a_success_are_enough() {
    let (closes, moved) = ("", "301 Moved\r\nLocation: /g\r\nContent-Length: 0");
    for (options, is_expected, head, word) in [
        // Upload links and doors permit PUT only.
        (UNKNOWN, true, "403 No\r\nContent-Length: 0", "403"),
        (UNKNOWN, true, UNKNOWN, "405"),
        (UNKNOWN, true, closes, "closed"),
        (UNKNOWN, true, "200 OK", "no size"),
        (UNKNOWN, true, "200 OK\r\nContent-Length: 3\r\nContent-Encoding: gzip", "coding"),
        (closes, true, "200 OK\r\nContent-Length: 6", ""),
        (moved, true, "200 OK\r\nContent-Length: 6", ""),
        (SILENT, true, "200 OK\r\nContent-Length: 6", ""),
        (UNKNOWN, true, SILENT, "did not finish"),
        (UNKNOWN, true, "200 OK\r\nContent-Length: 6\r\n\r\nabcdef", ""),
        (UNKNOWN, false, "200 OK\r\nContent-Length: 6", ""),
    ] {
        let server = answering(move |peer, request| match method(request) {
            "OPTIONS" => answer(peer, options),
            "PUT" if !is_expected && request.field("expect").is_some() => {
                "417 No\r\nContent-Length: 0".to_owned()
            }
            "PUT" => {
                assert_eq!(body(peer, request), b"abcdef");
                MADE.to_owned()
            }
            _ => answer(peer, head),
        });
        let run = put_of(b"abcdef", &["--json", "--retries", "0", "--stall-timeout", "2s"]);
        let ended = run.args(["f", &server.url("/f")]).run().ok();
        assert_eq!(ended.stdout.contains("sent, not verified"), !word.is_empty(), "{ended:?}");
        assert!(ended.stdout.contains(word), "{ended:?}");
        assert_eq!(requests_of(&server, "PUT").len(), 2 - usize::from(is_expected), "{head}");
    }
}

#[test]
fn upload_stays_with_the_address_that_has_answered() {
    let beginning = answering(|peer, request| match (method(request), peer.number) {
        ("OPTIONS", _) => UNKNOWN.to_owned(),
        ("PUT", 2..) => {
            assert_eq!(body(peer, request), b"abcdef");
            MADE.to_owned()
        }
        ("HEAD", 2..) => "200 OK\r\nContent-Length: 6".to_owned(),
        // The connection of the first PUT ends without any answer.
        _ => String::new(),
    });
    let port = beginning.address.port();
    let other = Server::on(TcpListener::bind(("127.0.0.2", port)).unwrap(), |peer| peer.answer(""));
    let (rule, url) = (format!("two.test:{port}:127.0.0.1,127.0.0.2"), format!("http://two.test:{port}/f"));
    put_of(b"abcdef", &["--resolve", &rule, "f", &url]).run().ok();
    assert_eq!((requests_of(&beginning, "PUT").len(), other.requests().len()), (2, 0));
}

#[test]
fn server_without_response_or_that_stops_reading_times_out() {
    let args = ["--stall-timeout", "500ms", "--retries", "0"];
    let server = Server::new(|peer| drop(read(peer, usize::MAX)));
    put_of(b"abc", &args).args(["f", &server.url("/f")]).run().fails(75, &["within 500ms"]);
    for reader in ["sendfile", "direct"] {
        let server = plain(0, |peer, request| {
            permit(peer, request);
            read(peer, 100_000);
            // Keeps the connection open.
            std::mem::forget(peer.stream.try_clone().unwrap());
            String::new()
        });
        let run = put_of(&content(64 << 20, 4), &args).args(["--reader", reader, "f", &server.url("/f")]);
        run.run().fails(75, &["took nothing within 500ms"]);
    }
}

#[test]
fn interim_102_responses_extend_the_timeout() {
    let bytes = content(32 << 20, 6);
    let server = plain(bytes.len(), |peer, request| {
        let length = permit(peer, request);
        read(peer, 100_000);
        keep_waiting(peer);
        read(peer, length - 100_000);
        MADE.to_owned()
    });
    put_of(&bytes, &["--stall-timeout", "1s", "--retries", "0", "f", &server.url("/f")]).run().ok();
}

#[test]
fn temporary_server_errors_are_retried() {
    let bytes = content(200_000, 5);
    let (sent, tries) = (bytes.clone(), AtomicUsize::new(0));
    let server = plain(bytes.len(), move |peer, request| {
        if tries.fetch_add(1, Ordering::SeqCst) == 0 {
            return "503 Later\r\nRetry-After: 0\r\nContent-Length: 0".to_owned();
        }
        assert!(body(peer, request) == sent);
        "204 Done".to_owned()
    });
    let ended = put_of(&bytes, &["--json", "f", &server.url("/f")]).run().ok();
    assert!(ended.json().iter().any(|line| line["event"] == "retrying"), "{ended:?}");
}

#[test]
fn closed_port_is_reported() {
    for url in ["http://127.0.0.1:1/f", "ftp://127.0.0.1:1/f"] {
        let ended = put_of(b"abc", &["f", url]).run().fails(69, &["127.0.0.1:1", "refused"]);
        assert!(!ended.stderr.contains("tries again"), "a refusal is final, as for get: {ended:?}");
    }
    put_of(b"abc", &["--retries", "0", "f", "http://no-such-host.invalid/f"])
        .run()
        .fails(68, &["no-such-host.invalid"]);
}
