//! The final request of an upload, and failures before its response.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{is_verified, method, put_of, put_to, to};
use crate::support::{Ended, HttpRequest, Peer, Writable, content, relay, same};

/// More than the hasher's block size.
const SIZE: usize = (5 << 20) + 77;

fn completes(request: &HttpRequest) -> bool {
    request.field("upload-complete") == Some("?1")
}

/// Puts `bytes` to `site` through a relay that handles the first completion request.
fn put_past(
    site: &Writable,
    bytes: &[u8],
    meddle: impl Fn(&HttpRequest, &mut Peer) -> bool + Send + Sync + 'static,
) -> (Ended, Vec<HttpRequest>) {
    let done = AtomicBool::new(false);
    let server = relay(site.address(), move |request, peer| {
        !completes(request) || done.swap(true, Ordering::SeqCst) || meddle(request, peer)
    });
    let ended = put_to(&server.url("/f"), site, bytes).run().ok();
    (ended, server.requests())
}

/// Returns the number of requests with a body.
fn parts(asks: &[HttpRequest]) -> usize {
    asks.iter().filter(|request| method(request) == "PATCH" && !completes(request)).count()
}

/// Serves the completing request over a connection of its own, and loses the response.
fn lose_response(address: SocketAddr) -> impl Fn(&HttpRequest, &mut Peer) -> bool + Send + Sync + 'static {
    move |request, _| {
        let mut server = TcpStream::connect(address).unwrap();
        server.write_all(request.head.as_bytes()).unwrap();
        let mut status = [0; 12];
        server.read_exact(&mut status).unwrap();
        assert_eq!(status, *b"HTTP/1.1 201");
        false
    }
}

fn refuse_for_now(_: &HttpRequest, peer: &mut Peer) -> bool {
    peer.send("HTTP/1.1 503 Later\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n");
    peer.close();
    false
}

#[test]
fn refused_or_lost_completion_is_repeated_without_the_file() {
    for (site, size, is_lost) in [
        (Writable::start(), SIZE, false),
        (Writable::start(), SIZE, true),
        // A token that only writes may not replace the file, which has its name since the first
        // request.
        (Writable::write_only(), SIZE, true),
        (Writable::write_only(), 0, true),
    ] {
        let bytes = content(size, 2);
        let (ended, asks) = match is_lost {
            true => put_past(&site, &bytes, lose_response(site.address())),
            false => put_past(&site, &bytes, refuse_for_now),
        };
        assert!(is_verified(&ended), "{ended:?}");
        let completing = asks.iter().filter(|request| completes(request));
        let digests: Vec<_> = completing.map(|request| request.field("repr-digest")).collect();
        assert!(digests.len() == 2 && digests[0] == digests[1] && digests[0].is_some(), "{digests:?}");
        assert_eq!(parts(&asks), 1);
        same(site.path("f"), &bytes);
        assert_eq!(site.names(), ["f"]);
    }
}

#[test]
fn another_run_sends_the_file_again() {
    let site = Writable::start();
    let server = relay(site.address(), |_, _| true);
    let run = put_to(&server.url("/f"), &site, &content(SIZE, 7));
    for runs in 1..=2 {
        run.run().ok();
        assert_eq!(parts(&server.requests()), runs);
    }
    assert_eq!(site.names(), ["f"]);
}

#[test]
fn completion_after_another_put_starts_over() {
    let site = Writable::start();
    let (first, second) = (content(SIZE, 3), content(SIZE, 4));
    let other = to(&site, "/f", &second);
    let (_, asks) = put_past(&site, &first, move |_, _| other.run().status.success());
    assert_eq!(parts(&asks), 2);
    same(site.path("f"), &first);
    assert_eq!(site.names(), ["f"]);
    to(&site, "/f", &second).run().ok();
    same(site.path("f"), &second);
}

#[test]
fn source_that_changes_before_the_completion_is_noticed_without_a_digest() {
    let site = Writable::start();
    let run = put_of(&content(SIZE, 5), &["--no-verify", "--streams", "1", "--token"]).args([site.token()]);
    let (path, other) = (run.path("f"), content(SIZE, 6));
    let server = relay(site.address(), move |request, _| {
        if completes(request) {
            fs::write(&path, &other).unwrap();
        }
        true
    });
    run.args(["f", &server.url("/f")]).run().fails(65, &["changed"]);
}
