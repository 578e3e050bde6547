//! The last request of an upload, and all that can come between it and its answer.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Ask, Ended, Peer, Put, Writable, content, put, relay, same};

/// More than the hasher reads at once.
const SIZE: usize = (5 << 20) + 77;

fn completes(ask: &Ask) -> bool {
    ask.field("upload-complete") == Some("?1")
}

/// Puts `bytes` to `site` past a relay that has its way with the first request for completion.
fn put_past(
    site: &Writable,
    bytes: &[u8],
    meddle: impl Fn(&Ask, &mut Peer) -> bool + Send + Sync + 'static,
) -> (Ended, Vec<Ask>) {
    let done = AtomicBool::new(false);
    let server = relay(site.address(), move |ask, peer| {
        !completes(ask) || done.swap(true, Ordering::SeqCst) || meddle(ask, peer)
    });
    let run = to(&server.url("/f"), site, bytes);
    let ended = run.run();
    (ended, server.asks())
}

fn to(url: &str, site: &Writable, bytes: &[u8]) -> Put {
    let run = put().args(["--json", "--token"]).args([site.token()]).args(["f", url]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

/// Returns how many requests carry bytes.
fn parts(asks: &[Ask]) -> usize {
    asks.iter().filter(|ask| ask.head.starts_with("PATCH") && !completes(ask)).count()
}

#[test]
fn is_asked_for_again_with_the_same_digest() {
    let site = Writable::start();
    let bytes = content(SIZE, 1);
    let (ended, asks) = put_past(&site, &bytes, |_, peer| {
        peer.send("HTTP/1.1 503 Later\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n");
        peer.close();
        false
    });
    let done = ended.ok().done();
    assert!(done["digest"].as_str().unwrap().starts_with("blake3:"), "{done}");
    let digests: Vec<_> =
        asks.iter().filter(|ask| completes(ask)).map(|ask| ask.field("repr-digest")).collect();
    assert!(digests.len() == 2 && digests[0] == digests[1] && digests[0].is_some(), "{digests:?}");
    assert_eq!(parts(&asks), 1);
    same(site.path("f"), &bytes);
}

#[test]
fn is_done_again_with_all_the_rest_where_the_answer_is_lost() {
    let site = Writable::start();
    let bytes = content(SIZE, 2);
    let address = site.address();
    let (ended, asks) = put_past(&site, &bytes, move |ask, _| {
        // Over a connection that nobody relays.
        let mut server = TcpStream::connect(address).unwrap();
        server.write_all(ask.head.as_bytes()).unwrap();
        let mut status = [0; 12];
        server.read_exact(&mut status).unwrap();
        assert_eq!(status, *b"HTTP/1.1 201");
        false
    });
    ended.ok();
    assert_eq!(parts(&asks), 2);
    same(site.path("f"), &bytes);
    assert_eq!(site.names(), ["f"]);
}

#[test]
fn is_gone_back_from_where_another_put_came_in_between() {
    let site = Writable::start();
    let (first, second) = (content(SIZE, 3), content(SIZE, 4));
    let (url, token, other) = (site.url("/f"), site.token(), second.clone());
    let (ended, asks) = put_past(&site, &first, move |_, _| {
        let run = put().args(["--token"]).args([&token]).args(["f", &url]);
        fs::write(run.path("f"), &other).unwrap();
        run.run().ok();
        true
    });
    ended.ok();
    assert_eq!(parts(&asks), 2);
    same(site.path("f"), &first);
    assert_eq!(site.names(), ["f"]);
    to(&site.url("/f"), &site, &second).run().ok();
    same(site.path("f"), &second);
}
