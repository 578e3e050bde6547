//! Servers that accept only one connection, or a limited number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{SIZE, TunedFetch, each_tuner, events, serve_slowly};
use crate::support::{File, Peer, Server, content, same};

/// Fetches from a server that accepts only the first connection.
#[test]
fn a_second_connection_is_refused() {
    let file = File::new(content(SIZE, 19));
    let serve = || {
        let served = file.clone();
        Server::once(move |peer| peer.serve_at(20_000_000, &served))
    };
    for TunedFetch { run, tuner, .. } in each_tuner(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let seen = ["refused", "warning", "connected"].map(|kind| events(&ended, kind).count());
        assert!(seen[0] > 0 && seen[1..] == [0, 1], "{tuner}: {seen:?} {ended:?}");
    }
}

/// Fetches from a server that handles all connections except the first by `refuse`; checks that few are attempted.
fn with_only_one(refuse: impl Fn(&mut Peer) + Send + Sync + Copy + 'static) {
    let file = File::new(content(SIZE, 2));
    let serve = || {
        let (served, open) = (file.clone(), AtomicUsize::new(0));
        Server::new(move |peer| {
            if open.fetch_add(1, Ordering::SeqCst) == 0 {
                peer.serve_at(20_000_000, &served);
                open.store(0, Ordering::SeqCst);
            } else {
                refuse(peer);
            }
        })
    };
    for TunedFetch { run, tuner, .. } in each_tuner(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(events(&ended, "refused").count() > 0, "{tuner}: {ended:?}");
        assert_eq!(events(&ended, "warning").count(), 0, "{tuner}: {ended:?}");
        let connected = events(&ended, "connected").count();
        assert!(connected <= 12, "{tuner}: {connected} connections");
        assert_eq!(ended.done()["streams"], 1, "{tuner}");
    }
}

#[test]
fn a_second_connection_is_closed() {
    with_only_one(|_| {});
}

#[test]
fn a_second_connection_is_reset() {
    with_only_one(|peer| {
        peer.read_request();
        peer.reset();
    });
}

#[test]
fn a_second_connection_is_forbidden() {
    with_only_one(|peer| {
        peer.read_request();
        peer.send("HTTP/1.1 403 Too many\r\nContent-Length: 0\r\n\r\n");
        peer.close();
    });
}

/// Fetches from a server that limits the connections per client to `allowed`.
fn above(allowed: usize, answer: &'static str) {
    let file = File::new(content(SIZE, 3));
    let refusals = Arc::new(AtomicUsize::new(0));
    let serve = || {
        let (served, open, count) = (file.clone(), AtomicUsize::new(0), refusals.clone());
        Server::new(move |peer| {
            if open.fetch_add(1, Ordering::SeqCst) < allowed {
                serve_slowly(peer, &served);
            } else if peer.read_request().is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                peer.send(answer);
                peer.close();
            }
            open.fetch_sub(1, Ordering::SeqCst);
        })
    };
    for TunedFetch { run, tuner, .. } in each_tuner(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let (streams, refusals) = (ended.done()["streams"].as_u64(), refusals.swap(0, Ordering::SeqCst));
        // A refusal must not reduce the streams below the limit.
        assert!((2..=allowed as u64).contains(&streams.unwrap()), "{tuner}: {streams:?}");
        assert!((1..=16).contains(&refusals), "{tuner}: refused {refusals} times");
        assert_eq!(events(&ended, "retrying").count(), 0, "{tuner}: {ended:?}");
    }
}

#[test]
fn too_many_requests_above_three() {
    above(3, "HTTP/1.1 429 Too many\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn too_many_requests_with_endless_retry_after() {
    above(3, "HTTP/1.1 429 Too many\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn unavailable_above_two() {
    above(2, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
}
