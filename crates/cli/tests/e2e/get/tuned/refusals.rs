//! Servers that accept only one connection, or a limited number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{RATE, SIZE, count, each};
use crate::support::{File, Peer, Server, at_once, content, response};

#[test]
fn a_second_connection_is_refused() {
    let file = File::new(content(SIZE, 19));
    let serve = || {
        let served = file.clone();
        Server::once(move |peer| peer.serve_at(20_000_000, &served))
    };
    each(&["apt", "auto"], serve, |tuner, run, _| {
        let ended = run.fetches(&file.bytes);
        let seen = ["refused", "warning", "connected"].map(|kind| count(&ended, kind));
        assert!(seen[0] > 0 && seen[1..] == [0, 1], "{tuner}: {seen:?} {ended:?}");
    });
}

#[test]
fn a_second_connection_is_not_served() {
    let file = File::new(content(SIZE, 2));
    let cases: [fn(&mut Peer); 3] = [
        |_| {},
        |peer| {
            peer.read_request();
            peer.reset();
        },
        |peer| peer.answer(response("403 Too many", "")),
    ];
    at_once(cases, |refuse| {
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
        each(&["apt", "auto"], serve, |tuner, run, _| {
            let ended = run.fetches(&file.bytes);
            let seen = ["refused", "warning", "connected"].map(|kind| count(&ended, kind));
            assert!(seen[0] > 0 && seen[1] == 0 && seen[2] <= 12, "{tuner}: {seen:?} {ended:?}");
            assert_eq!(ended.done()["streams"], 1, "{tuner}");
        });
    });
}

#[test]
fn connections_above_a_limit_are_refused() {
    let file = File::new(content(SIZE, 3));
    let cases = [
        (3, "429 Too many\r\nRetry-After: 120"),
        (3, "429 Too many\r\nRetry-After: 99999999999999999999"),
        (2, "503 Busy"),
    ];
    at_once(cases, |(allowed, head)| {
        let refusals = Arc::new(AtomicUsize::new(0));
        let serve = || {
            let (served, open, count) = (file.clone(), AtomicUsize::new(0), refusals.clone());
            Server::new(move |peer| {
                if open.fetch_add(1, Ordering::SeqCst) < allowed {
                    peer.serve_at(RATE, &served);
                    open.fetch_sub(1, Ordering::SeqCst);
                } else {
                    // A refused connection takes no place of others.
                    open.fetch_sub(1, Ordering::SeqCst);
                    count.fetch_add(1, Ordering::SeqCst);
                    peer.answer(response(head, ""));
                }
            })
        };
        each(&["apt", "auto"], serve, |tuner, run, _| {
            let ended = run.fetches(&file.bytes);
            let streams = ended.done()["streams"].as_u64();
            // A refusal must not reduce the streams below the limit.
            assert!((2..=allowed as u64).contains(&streams.unwrap()), "{tuner}: {streams:?} {ended:?}");
            assert_eq!(count(&ended, "retrying"), 0, "{tuner}: {ended:?}");
        });
        // Of both tuners.
        let refusals = refusals.load(Ordering::SeqCst);
        assert!((2..=32).contains(&refusals), "refused {refusals} times");
    });
}
