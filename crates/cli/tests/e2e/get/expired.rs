//! Redirects to targets that expire after minutes, or after a few requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{File, Peer, Server, content, get, partial_files, same};

const SIZE: usize = 3_000_000;
/// Bytes that a target sends before it closes.
const PIECE: usize = 1_000_000;

/// Redirects every request to the result of `target`.
fn original(target: impl Fn() -> String + Send + Sync + 'static) -> Server {
    Server::new(move |peer| {
        while peer.read_request().is_some() {
            send_redirect(peer, &target());
        }
    })
}

fn send_redirect(peer: &mut Peer, to: &str) {
    peer.send(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"));
}

fn refuse(peer: &mut Peer, status: u16) {
    peer.send(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"));
}

/// Serves `file` at URLs that are valid for `uses` requests, and closes after a piece; then answers `status`.
fn expiring(file: &File, uses: usize, status: u16) -> Server {
    let (file, used) = (file.clone(), Mutex::new(std::collections::HashMap::<String, usize>::new()));
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let count = {
                let mut used = used.lock().unwrap();
                let count = used.entry(request.target.clone()).or_default();
                *count += 1;
                *count
            };
            if count > uses {
                refuse(peer, status);
                continue;
            }
            let (head, body) = file.answer(&request);
            peer.send(head);
            peer.send(&body[..body.len().min(PIECE)]);
            if body.len() > PIECE {
                return peer.close();
            }
        }
    })
}

fn fresh_targets(target: &Server) -> Server {
    let (url, count) = (target.url("/f?signed="), AtomicUsize::new(0));
    original(move || format!("{url}{}", count.fetch_add(1, Ordering::SeqCst)))
}

#[test]
fn expired_target_is_requested_again() {
    let file = File::new(content(SIZE, 1));
    for status in [400, 401, 403, 404, 410] {
        for streams in ["1", "4"] {
            let target = expiring(&file, 2, status);
            let server = fresh_targets(&target);
            let run = get().args(["--streams", streams, "-o", "f", &server.url("/f")]);
            run.run().ok();
            same(run.path("f"), &file.bytes);
            assert!(server.requests().len() > 1, "{status}, {streams}: nothing expired");
            assert_eq!(partial_files(run.dir()), [""; 0]);
        }
    }
}

#[test]
fn target_that_refuses_connections_is_requested_again() {
    let file = File::new(content(SIZE, 2));
    let targets = Arc::new(Mutex::new(Vec::new()));
    let server = original(move || {
        let file = file.clone();
        // One connection for the request that receives the redirect, and one more.
        let target = Server::first(2, move |peer| {
            let Some(request) = peer.read_request() else { return };
            let (head, body) = file.answer(&request);
            peer.send(head);
            peer.send(&body[..body.len().min(PIECE)]);
            peer.close();
        });
        let url = target.url("/f");
        targets.lock().unwrap().push(target);
        url
    });
    let run = get().args(["--streams", "1", "-o", "f", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &content(SIZE, 2));
    assert!(server.requests().len() > 1, "nothing expired");
}

#[test]
fn fresh_target_with_another_file_is_not_used() {
    let (file, other) = (File::new(content(SIZE, 3)), File::new(content(SIZE, 4)));
    let first = expiring(&file, 1, 403);
    let second = Server::of(File { etag: Some("\"v2\""), ..other });
    let (urls, count) = ([first.url("/f"), second.url("/f")], AtomicUsize::new(0));
    let server = original(move || urls[count.fetch_add(1, Ordering::SeqCst).min(1)].clone());
    let run = get().args(["--streams", "1", "-o", "f", &server.url("/f")]);
    let ended = run.run().fails(65, &[&server.url("/f"), "changed on the server", "--no-resume"]);
    assert!(ended.time < Duration::from_secs(10), "{ended:?}");
    assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
}

#[test]
fn permanently_expired_link_keeps_the_partial_file() {
    let file = File::new(content(SIZE, 5));
    for (status, code) in [(404, 66), (410, 66), (403, 77), (401, 77)] {
        let target = expiring(&file, 1, 403);
        let url = target.url("/f");
        let answered = AtomicBool::new(false);
        let server = Server::new(move |peer| {
            while peer.read_request().is_some() {
                if answered.swap(true, Ordering::SeqCst) {
                    refuse(peer, status);
                } else {
                    send_redirect(peer, &url);
                }
            }
        });
        let run = get().args(["--json", "--streams", "1", "-o", "f", &server.url("/f")]);
        let ended = run.run().fails(code, &[&status.to_string()]);
        assert!(ended.time < Duration::from_secs(10), "{ended:?}");
        assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
        // A fresh link resumes the transfer.
        let fresh = Server::of(file.clone());
        let run = run.again(["--json", "-o", "f", &fresh.url("/fresh")]);
        assert_eq!(run.run().ok().done()["resumed"], PIECE);
        same(run.path("f"), &file.bytes);
    }
}

/// The first target accepts connections, but answers no request after its second.
#[test]
fn target_that_breaks_connections_is_requested_again() {
    let file = File::new(content(SIZE, 8));
    let served = file.clone();
    let (count, broken) = (AtomicUsize::new(0), AtomicBool::new(false));
    let target = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let is_first = request.target.ends_with("=0");
            if is_first && count.fetch_add(1, Ordering::SeqCst) > 1 {
                return peer.close();
            }
            let (head, body) = served.answer(&request);
            peer.send(head);
            peer.send(&body[..if is_first { body.len().min(PIECE) } else { body.len() }]);
            if is_first {
                return peer.close();
            }
        }
    });
    let url = target.url("/f?signed=");
    let server = original(move || format!("{url}{}", usize::from(broken.swap(true, Ordering::SeqCst))));
    let run = get().args(["--streams", "1", "-o", "f", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &file.bytes);
    assert_eq!(server.requests().len(), 2, "nothing expired");
}

/// Each target serves only the request that was redirected to it.
#[test]
fn single_use_targets_serve_the_file() {
    let file = File::new(content(SIZE, 6));
    for streams in ["1", "4"] {
        let target = expiring(&file, 1, 403);
        let server = fresh_targets(&target);
        let run = get().args(["--json", "--streams", streams, "-o", "f", &server.url("/f")]);
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        // A request whose target is already used up does not count as a refusal by the server.
        assert!(!ended.stdout.contains("\"event\":\"refused\""), "{ended:?}");
    }
}

/// Every target except the first refuses all requests.
#[test]
fn targets_that_never_serve_end_the_transfer() {
    let file = File::new(content(SIZE, 9));
    for streams in ["1", "4"] {
        let served = file.clone();
        let target = Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                if !request.target.ends_with("=0") || peer.number > 0 {
                    refuse(peer, 403);
                    continue;
                }
                let (head, body) = served.answer(&request);
                peer.send(head);
                peer.send(&body[..PIECE]);
                return peer.close();
            }
        });
        let server = fresh_targets(&target);
        let run = get().args(["--streams", streams, "-o", "f", &server.url("/f")]);
        let ended = run.run().fails(77, &["403"]);
        assert!(ended.time < Duration::from_secs(10), "{ended:?}");
        assert!(server.requests().len() < 20, "{} requests", server.requests().len());
        assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
    }
}

/// Streams with working connections do not wait for the stream that requests the original again.
#[test]
fn hanging_original_delays_no_other_stream() {
    let file = File::new(content(32 << 20, 7));
    let served = file.clone();
    let refused = AtomicBool::new(false);
    let target = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            // The first request on any connection except the first.
            if peer.number > 0 && !refused.swap(true, Ordering::SeqCst) {
                refuse(peer, 403);
                continue;
            }
            let (head, body) = served.answer(&request);
            if !peer.send(head) || !peer.trickle(body, 20_000_000) {
                return;
            }
        }
    });
    let (url, asked) = (target.url("/f"), AtomicBool::new(false));
    let server = Server::new(move |peer| {
        while peer.read_request().is_some() {
            if asked.swap(true, Ordering::SeqCst) {
                std::thread::sleep(Duration::from_secs(20));
            }
            send_redirect(peer, &url);
        }
    });
    let run = get().args(["--streams", "2", "-o", "f", &server.url("/f")]);
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    assert_eq!(server.requests().len(), 2, "nothing expired");
    assert!(ended.time < Duration::from_secs(10), "{ended:?}");
}
