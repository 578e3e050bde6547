//! Responses to uploads: early, wrong, or missing.

use std::fs;
use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{HttpRequest, Peer, Put, Server, content, put};

/// A server without resumable uploads, which answers a PUT by `play`.
fn plain(play: impl Fn(&mut Peer, &HttpRequest) + Send + Sync + 'static) -> Server {
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            if request.head.starts_with("PUT ") {
                play(peer, &request);
            } else if !peer.send("HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n") {
                return;
            }
        }
    })
}

/// Reads `length` bytes of a body; returns those received before the client closed.
fn read(peer: &Peer, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = (&peer.stream).take(length as u64).read_to_end(&mut bytes);
    bytes
}

fn put_of(bytes: &[u8], args: &[&str]) -> Put {
    let run = put().args(args);
    fs::write(run.path("f"), bytes).unwrap();
    run
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
        let server = plain(move |peer, _| {
            peer.send(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"));
            // Nothing but the connection's close may follow the head.
            received.send(read(peer, 1).len()).unwrap();
        });
        put_of(&content(1 << 20, 1), &["f", &server.url("/f")])
            .run()
            .fails(code, &[word, &status.to_string()]);
        let put = server.requests().into_iter().find(|request| request.head.starts_with("PUT ")).unwrap();
        assert_eq!(put.field("expect"), Some("100-continue"));
        assert_eq!(put.field("content-length"), Some("1048576"));
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
        let fields = format!("{fields}\r\nContent-Length: {}", body.len());
        let server = plain(move |peer, _| {
            peer.send(format!("HTTP/1.1 409 No\r\n{fields}\r\n\r\n{body}"));
        });
        let ended = put_of(b"abc", &["f", &server.url("/f")]).run().fails(73, &[shown]);
        assert!(ended.error().len() < 1200, "{ended:?}");
    }
}

#[test]
fn response_amid_the_body_is_read_although_the_server_closes() {
    let bytes = content(64 << 20, 2);
    for reader in ["sendfile", "direct"] {
        for reset in [false, true] {
            let server = plain(move |peer, _| {
                peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                read(peer, 1 << 20);
                peer.send("HTTP/1.1 507 Full\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                if reset {
                    // Closing with unread bytes causes a reset.
                    let _ = peer.stream.shutdown(std::net::Shutdown::Both);
                } else {
                    peer.close();
                }
            });
            let ended = put_of(&bytes, &["--reader", reader, "f", &server.url("/f")]).run();
            ended.fails(74, &["507 Full", "disk is full"]);
        }
    }
}

#[test]
fn body_is_sent_to_a_server_without_100_continue() {
    let bytes = content(300_000, 3);
    let sent = bytes.clone();
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let head = match request.head.split(' ').next() {
                Some("PUT") => {
                    assert!(read(peer, sent.len()) == sent);
                    // Too late, and useless by then.
                    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n".into()
                }
                Some("HEAD") => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sent.len()),
                _ => "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n".into(),
            };
            peer.send(head);
        }
    });
    let ended = put_of(&bytes, &["f", &server.url("/f")]).run().ok();
    assert!(ended.time > Duration::from_millis(1900), "the body went out unasked: {ended:?}");
}

#[test]
fn a_file_that_arrived_short_is_no_success() {
    for length in ["5", "7"] {
        let server = Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let head = match request.head.split(' ').next() {
                    Some("PUT") => {
                        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                        read(peer, 6);
                        "HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n".to_owned()
                    }
                    Some("HEAD") => format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"),
                    _ => "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
                };
                peer.send(head);
            }
        });
        put_of(b"abcdef", &["f", &server.url("/f")]).run().fails(76, &[length, "of 6"]);
    }
}

/// An older file of the same size passes the check of the size.
#[test]
fn success_reported_instead_of_100_continue_is_no_success() {
    let server = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            peer.send(match request.head.split(' ').next() {
                Some("PUT") => "HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n",
                Some("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n",
                _ => "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n",
            });
        }
    });
    put_of(b"abcdef", &["f", &server.url("/f")]).run().fails(76, &["before it has all of it"]);
}

#[test]
fn server_without_response_times_out() {
    let server = Server::new(|peer| {
        read(peer, usize::MAX);
    });
    let run = put_of(b"abc", &["--stall-timeout", "500ms", "--retries", "1", "f", &server.url("/f")]);
    run.run().fails(75, &["within 500ms"]);
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn server_that_stops_reading_times_out() {
    for reader in ["sendfile", "direct"] {
        let server = plain(|peer, _| {
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            read(peer, 100_000);
            std::thread::sleep(Duration::from_secs(30));
        });
        let args = ["--stall-timeout", "1s", "--retries", "0", "--reader", reader, "f", &server.url("/f")];
        let ended = put_of(&content(64 << 20, 4), &args).run();
        assert!(ended.time < Duration::from_secs(15), "{ended:?}");
        ended.fails(75, &["took nothing within 1s"]);
    }
}

#[test]
fn interim_102_responses_extend_the_timeout() {
    let bytes = content(32 << 20, 6);
    let length = bytes.len();
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let head = match request.head.split(' ').next() {
                Some("PUT") => {
                    peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                    read(peer, 100_000);
                    for _ in 0..8 {
                        std::thread::sleep(Duration::from_millis(300));
                        peer.send("HTTP/1.1 102 Processing\r\n\r\n");
                    }
                    read(peer, length - 100_000);
                    "HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n".to_owned()
                }
                Some("HEAD") => format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"),
                _ => "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            peer.send(head);
        }
    });
    put_of(&bytes, &["--stall-timeout", "1s", "--retries", "0", "f", &server.url("/f")]).run().ok();
}

#[test]
fn temporary_server_errors_are_retried() {
    let bytes = content(200_000, 5);
    let sent = bytes.clone();
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let head = match request.head.split(' ').next() {
                Some("PUT") if tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => {
                    "HTTP/1.1 503 Later\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n".to_owned()
                }
                Some("PUT") => {
                    peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                    assert!(read(peer, sent.len()) == sent);
                    "HTTP/1.1 204 Done\r\n\r\n".to_owned()
                }
                Some("HEAD") => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sent.len()),
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            if !peer.send(head) {
                return;
            }
        }
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

#[test]
fn success_before_the_end_of_the_body_is_an_error() {
    const SIZE: usize = 8 << 20;
    // To a server that resumes: it claims to have the whole file after the first bytes.
    let resuming = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            let answer = match request.head.split(' ').next().unwrap() {
                "OPTIONS" => "204 Yes\r\nAccept-Patch: application/partial-upload".to_owned(),
                "HEAD" => "404 No\r\nContent-Length: 0".to_owned(),
                _ => {
                    read(peer, 1000);
                    format!("204 Yes\r\nUpload-Offset: {SIZE}\r\nUpload-Complete: ?0")
                }
            };
            peer.send(format!("HTTP/1.1 {answer}\r\n\r\n"));
        }
    });
    let putting = plain(|peer, _| {
        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
        read(peer, 1000);
        peer.send("HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n");
    });
    for (server, options) in [
        (&resuming, &["--streams", "1"][..]),
        (&resuming, &["--streams", "1", "--no-verify"]),
        (&putting, &[]),
    ] {
        let run = put_of(&content(SIZE, 9), options).args(["--limit", "20MB/s", "f", &server.url("/f")]);
        let ended = run.run().fails(76, &["before it has all of it"]);
        assert!(ended.time < Duration::from_secs(20), "{ended:?}");
    }
}
