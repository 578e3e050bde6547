//! Uploads over several streams, and the round trips of one.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::{MADE, RESUMABLE, method, put_of, put_to, read, requests_of, to};
use crate::support::{
    Ended, HttpRequest, Peer, RelayAction, Server, Writable, content, relay, relay_as, same,
};

const SIZE: usize = 24 << 20;
const STREAMS: [&str; 2] = ["--streams", "4"];
/// A rate at which each stream connects before the others have sent all.
const SLOWLY: [&str; 2] = ["--limit", "24MB/s"];

/// Returns the number of connections that carried ranges.
pub(super) fn connected(ended: &Ended) -> usize {
    let lines = ended.events("connected");
    lines.iter().map(|line| line["stream"].as_u64()).collect::<BTreeSet<_>>().len()
}

fn is_range(request: &HttpRequest) -> bool {
    request.head.starts_with("PATCH") && request.field("content-range").is_some()
}

#[test]
fn file_arrives_whole_and_verified_by_either_reader() {
    let site = Writable::start();
    let bytes = content(SIZE + 4097, 1);
    for options in [
        &["--reader", "sendfile"][..],
        &["--reader", "direct"],
        &["--no-verify"],
        &["--verify", "disk"],
        &SLOWLY,
    ] {
        let ended = to(&site, "/f", &bytes).args(STREAMS).args(options).run().ok();
        if options == SLOWLY {
            assert_eq!((ended.done()["streams"].as_u64(), connected(&ended)), (Some(4), 4), "{ended:?}");
        }
        assert_eq!(ended.done()["digest"].is_null(), options == ["--no-verify"], "{ended:?}");
        site.hands_over(&bytes);
    }
}

#[test]
fn put_uses_the_tuners_of_get() {
    let site = Writable::start();
    let bytes = content(SIZE, 3);
    let apt = ["--tuner", "apt", "--apt-n0", "3", "--apt-delta", "100ms"];
    let ended = to(&site, "/f", &bytes).args(apt).args(SLOWLY).run().ok();
    assert!(connected(&ended) >= 3, "{ended:?}");
    same(site.path("f"), &bytes);
}

#[test]
fn one_stream_and_a_server_without_ranges_get_one_request() {
    let site = Writable::start();
    let bytes = content(SIZE, 4);
    for (streams, knows_ranges) in [("1", true), ("4", false), ("auto", true)] {
        let server = relay_as(site.address(), move |request, peer| {
            if request.head.starts_with("OPTIONS") && !knows_ranges {
                peer.send(format!("HTTP/1.1 {RESUMABLE}\r\n\r\n"));
                return RelayAction::Answered;
            }
            RelayAction::Head(request.head.clone())
        });
        put_to(&server.url("/f"), &site, &bytes).args(["--streams", streams]).run().ok();
        let parts = requests_of(&server, "PATCH");
        let sizes: Vec<_> = parts.iter().map(|request| request.field("content-length")).collect();
        assert_eq!(sizes, [Some(SIZE.to_string().as_str()), Some("0")], "{streams}");
        assert_eq!(parts[0].field("upload-offset"), Some("0"));
        site.hands_over(&bytes);
    }
}

#[test]
fn stream_that_is_cut_or_refused_ends_the_put_only_on_a_full_disk() {
    let site = Writable::start();
    let bytes = content(SIZE, 8);
    for refusal in [None, Some("503 Busy"), Some("429 Slow"), Some("507 Full")] {
        let ranges = AtomicUsize::new(0);
        let server = relay_as(site.address(), move |request, peer| {
            if !is_range(request) || ranges.fetch_add(1, Ordering::SeqCst) != 5 {
                return RelayAction::Head(request.head.clone());
            }
            if let Some(refusal) = refusal {
                let fields = "Content-Length: 0\r\nConnection: close";
                peer.send(format!("HTTP/1.1 {refusal}\r\n{fields}\r\n\r\n"));
                peer.close();
            }
            RelayAction::Cut
        });
        let ended = put_to(&server.url("/f"), &site, &bytes).args(STREAMS).args(SLOWLY).run();
        if refusal == Some("507 Full") {
            ended.fails(74, &["507", "disk is full"]);
            continue;
        }
        let ended = ended.ok();
        assert!(ended.json().iter().any(|line| line["event"] == "retrying"), "{refusal:?}: {ended:?}");
        site.hands_over(&bytes);
    }
}

/// The put ends only because another stream resends the range.
#[test]
fn stream_that_the_server_holds_up_is_taken_over_from() {
    let site = Writable::start();
    let bytes = content(SIZE, 9);
    let (ranges, (release, released)) = (AtomicUsize::new(0), channel::<()>());
    let released = Mutex::new(released);
    let server = relay_as(site.address(), move |request, _| {
        if is_range(request) && ranges.fetch_add(1, Ordering::SeqCst) == 1 {
            let _: Result<(), _> = released.lock().unwrap().recv();
            return RelayAction::Cut;
        }
        RelayAction::Head(request.head.clone())
    });
    put_to(&server.url("/f"), &site, &bytes).args(["--streams", "2"]).run().ok();
    same(site.path("f"), &bytes);
    drop(release);
}

#[test]
fn range_that_takes_longer_than_the_stall_timeout_has_not_stalled() {
    let site = Writable::start();
    let bytes = content(8 << 20, 14);
    // Ranges of 1 MiB, at 0.5 MB/s each.
    let run = to(&site, "/f", &bytes).args(STREAMS).args(["--limit", "2MB/s", "--stall-timeout", "1s"]);
    let ended = run.run().ok();
    assert!(!ended.json().iter().any(|line| line["event"] == "retrying"), "{ended:?}");
    same(site.path("f"), &bytes);
}

const SMALL: usize = (3 << 20) + 77;

/// Reads the next request, which must have this method.
fn expect(peer: &mut Peer, wanted: &str) -> HttpRequest {
    let request = peer.read_request().unwrap();
    assert_eq!(method(&request), wanted);
    request
}

#[test]
fn questions_come_in_one_flight_and_all_else_in_the_next() {
    let bytes = content(SMALL, 1);
    for options in [&[][..], &["--no-verify"]] {
        let (sent, verifies) = (bytes.clone(), options.is_empty());
        let server = Server::once(move |peer| {
            // The first flight.
            expect(peer, "OPTIONS");
            let held = expect(peer, "HEAD");
            assert!(held.target.starts_with("/f?upload="), "{held:?}");
            peer.send(format!("HTTP/1.1 {RESUMABLE}\r\n\r\nHTTP/1.1 404 No\r\n\r\n"));
            // The second flight: nothing is answered before the request that completes the upload
            // has arrived.
            let part = expect(peer, "PATCH");
            assert_eq!((part.field("expect"), part.field("upload-offset")), (None, Some("0")));
            assert!(read(peer, sent.len()) == sent);
            let complete = expect(peer, "PATCH");
            assert_eq!(complete.field("upload-complete"), Some("?1"));
            assert_eq!(complete.field("repr-digest").is_some(), verifies);
            peer.send(format!("HTTP/1.1 204 Got\r\nUpload-Offset: {SMALL}\r\n\r\nHTTP/1.1 {MADE}\r\n\r\n"));
            peer.close();
        });
        let run = put_of(&bytes, &["--retries", "0", "--stall-timeout", "20s", "f", &server.url("/f")]);
        let ended = run.args(options).run().ok();
        assert_eq!(server.requests().len(), 4, "{ended:?}");
    }
}

#[test]
fn server_without_pipelining_gets_the_file() {
    let site = Writable::start();
    let bytes = content(SMALL, 2);
    // A connection for each response; requests pipelined behind it are lost.
    let server = relay_as(site.address(), |request, _| {
        RelayAction::Head(request.head.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
    });
    put_to(&server.url("/f"), &site, &bytes).run().ok();
    same(site.path("f"), &bytes);
    assert_eq!(site.names(), ["f"]);
}

#[test]
fn refused_query_makes_the_body_wait_for_100_continue() {
    let site = Writable::start();
    let server = relay(site.address(), |_, _| true);
    put_to(&server.url("/none/f"), &site, &content(1 << 20, 4)).run().fails(73, &["409", "directory"]);
    assert_eq!(requests_of(&server, "PATCH")[0].field("expect"), Some("100-continue"));
}
