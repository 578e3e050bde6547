//! Redirects to targets that expire after minutes, or after a few requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{File, Gate, Get, Server, content, get, response};

const SIZE: usize = 3_000_000;
/// Bytes that a target sends before it closes.
const PIECE: usize = 1_000_000;

/// Sends `answer` for each request, by its number from 0.
fn original(answer: impl Fn(usize) -> String + Send + Sync + 'static) -> Server {
    let count = AtomicUsize::new(0);
    Server::replying(move |_| answer(count.fetch_add(1, Ordering::SeqCst)))
}

fn redirect(to: &str) -> String {
    response(&format!("302 Found\r\nLocation: {to}"), "")
}

/// Redirects each request to another URL of `target`, numbered from 0.
fn fresh_targets(target: &Server) -> Server {
    let url = target.url("/f?signed=");
    original(move |number| redirect(&format!("{url}{number}")))
}

/// Redirects the first request to the first target, and all others to the second.
fn two_targets(first: &Server, second: &Server) -> Server {
    let urls = [first.url("/f"), second.url("/f")];
    original(move |number| redirect(&urls[number.min(1)]))
}

/// Answers requests that `serves` (number of the connection, target) with at most a piece of
/// `file`, and others with `status`; closes after a response that is not complete.
fn pieces(file: &File, status: u16, serves: impl Fn(usize, &str) -> bool + Send + Sync + 'static) -> Server {
    Server::with(file, move |peer, file| {
        while let Some(request) = peer.read_request() {
            if !serves(peer.number, &request.target) {
                peer.send(response(&format!("{status} No"), ""));
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

/// Serves pieces of `file` at URLs that are valid for `uses` requests.
fn expiring(file: &File, uses: usize, status: u16) -> Server {
    let used = Mutex::new(std::collections::HashMap::<String, usize>::new());
    pieces(file, status, move |_, target| {
        let mut used = used.lock().unwrap();
        let count = used.entry(target.to_owned()).or_default();
        *count += 1;
        *count <= uses
    })
}

fn fetch(streams: &str, server: &Server) -> Get {
    get().args(["--json", "--streams", streams, "-o", "f", &server.url("/f")])
}

#[test]
fn expired_target_is_requested_again() {
    let file = File::new(content(SIZE, 1));
    // Also where each target serves only the request that was redirected to it.
    for (uses, status) in [(2, 400), (2, 401), (2, 403), (2, 404), (2, 410), (1, 403)] {
        for streams in ["1", "4"] {
            let target = expiring(&file, uses, status);
            let server = fresh_targets(&target);
            let ended = fetch(streams, &server).fetches(&file.bytes);
            assert!(server.requests().len() > 1, "{status}, {streams}: nothing expired");
            // A request whose target is already used up does not count as a refusal by the server.
            assert!(uses > 1 || ended.events("refused").is_empty(), "{ended:?}");
        }
    }
}

/// The first target refuses connections after its second, or accepts them and closes without an
/// answer.
#[test]
fn target_that_serves_no_more_is_requested_again() {
    let file = File::new(content(SIZE, 2));
    for refuses in [true, false] {
        let (first, second) = (file.clone(), Server::of(file.clone()));
        let first = Server::first(if refuses { 2 } else { usize::MAX }, move |peer| match peer.number {
            0 | 1 => peer.break_off(&first, PIECE),
            _ => peer.close(),
        });
        let server = two_targets(&first, &second);
        fetch("1", &server).fetches(&file.bytes);
        assert_eq!(server.requests().len(), 2, "nothing expired");
    }
}

#[test]
fn fresh_target_with_another_file_is_not_used() {
    let (file, other) = (File::new(content(SIZE, 3)), File::new(content(SIZE, 4)));
    let first = expiring(&file, 1, 403);
    let second = Server::of(File { etag: Some("\"v2\""), ..other });
    let server = two_targets(&first, &second);
    fetch("1", &server).fails_resumably(65, &[&server.url("/f"), "changed on the server", "--no-resume"]);
}

#[test]
fn permanently_expired_link_keeps_the_partial_file() {
    let file = File::new(content(SIZE, 5));
    for (status, code) in [(404, 66), (410, 66), (403, 77), (401, 77)] {
        let target = expiring(&file, 1, 403);
        let (url, gone) = (target.url("/f"), response(&format!("{status} No"), ""));
        let server = original(move |number| if number == 0 { redirect(&url) } else { gone.clone() });
        let run = fetch("1", &server);
        run.fails_resumably(code, &[&status.to_string()]);
        // A fresh link resumes the transfer.
        let fresh = Server::of(file.clone());
        let run = run.again(["--json", "-o", "f", &fresh.url("/fresh")]);
        assert_eq!(run.fetches(&file.bytes).done()["resumed"], PIECE);
    }
}

/// Every target except the first refuses all requests.
#[test]
fn targets_that_never_serve_end_the_transfer() {
    let file = File::new(content(SIZE, 9));
    for streams in ["1", "4"] {
        let target = pieces(&file, 403, |connection, target| connection == 0 && target.ends_with("=0"));
        let server = fresh_targets(&target);
        fetch(streams, &server).fails_resumably(77, &["403"]);
        assert!(server.requests().len() < 20, "{} requests", server.requests().len());
    }
}

/// Streams with working connections do not wait for the stream that requests the original again.
#[test]
fn hanging_original_delays_no_other_stream() {
    let file = File::new(content(32 << 20, 7));
    let (served, refused) = (file.clone(), Gate::default());
    let target = Server::new(move |peer| {
        // The first request on any connection except the first, which waits for it.
        if peer.number > 0 && refused.open() {
            return peer.answer(response("403 No", ""));
        }
        peer.serve_after(4 << 20, &refused, &served);
    });
    let url = target.url("/f");
    let server = original(move |number| if number == 0 { redirect(&url) } else { String::new() });
    // Longer than a run may take: the second request of the original is never answered.
    fetch("2", &server).args(["--stall-timeout", "120s", "--connect-timeout", "120s"]).fetches(&file.bytes);
    assert_eq!(server.requests().len(), 2, "nothing expired");
}
