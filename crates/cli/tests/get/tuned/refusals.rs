//! Servers that take no second connection, or none above some.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Chosen, SIZE, each, events, serve_slowly};
use crate::support::{File, Peer, Server, content, same};

/// Fetches from a server that lets nobody in but the first.
#[test]
fn a_second_connection_is_refused() {
    let file = File::new(content(SIZE, 19));
    let serve = || {
        let served = file.clone();
        Server::once(move |peer| peer.serve_at(20_000_000, &served))
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let seen = ["refused", "warning", "connected"].map(|kind| events(&ended, kind).count());
        assert!(seen[0] > 0 && seen[1..] == [0, 1], "{who}: {seen:?} {ended:?}");
    }
}

/// Fetches from a server that treats all but the first connection by `refuse`; nobody is asked often.
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
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(events(&ended, "refused").count() > 0, "{who}: {ended:?}");
        assert_eq!(events(&ended, "warning").count(), 0, "{who}: {ended:?}");
        let connected = events(&ended, "connected").count();
        assert!(connected <= 12, "{who}: {connected} connections");
        assert_eq!(ended.done()["streams"], 1, "{who}");
    }
}

#[test]
fn a_second_connection_is_closed() {
    with_only_one(|_| {});
}

#[test]
fn a_second_connection_is_reset() {
    with_only_one(|peer| {
        peer.ask();
        peer.reset();
    });
}

#[test]
fn a_second_connection_is_forbidden() {
    with_only_one(|peer| {
        peer.ask();
        peer.send("HTTP/1.1 403 Too many\r\nContent-Length: 0\r\n\r\n");
        peer.close();
    });
}

/// What a server allows that counts its clients' connections.
fn above(allowed: usize, answer: &'static str) {
    let file = File::new(content(SIZE, 3));
    let refusals = Arc::new(AtomicUsize::new(0));
    let serve = || {
        let (served, open, count) = (file.clone(), AtomicUsize::new(0), refusals.clone());
        Server::new(move |peer| {
            if open.fetch_add(1, Ordering::SeqCst) < allowed {
                serve_slowly(peer, &served);
            } else if peer.ask().is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                peer.send(answer);
                peer.close();
            }
            open.fetch_sub(1, Ordering::SeqCst);
        })
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let (streams, told) = (ended.done()["streams"].as_u64(), refusals.swap(0, Ordering::SeqCst));
        // Nor does one refusal send those away that are served.
        assert!((2..=allowed as u64).contains(&streams.unwrap()), "{who}: {streams:?}");
        assert!((1..=16).contains(&told), "{who}: refused {told} times");
        assert_eq!(events(&ended, "retrying").count(), 0, "{who}: {ended:?}");
    }
}

#[test]
fn too_many_requests_above_three() {
    above(3, "HTTP/1.1 429 Too many\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn too_many_requests_for_ever() {
    above(3, "HTTP/1.1 429 Too many\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn unavailable_above_two() {
    above(2, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
}
