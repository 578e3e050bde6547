//! Servers that accept only one connection, or a limited number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{RATE, SIZE, count, each};
use crate::support::{File, Peer, Server, at_once, content, response};

/// Serves `file` on `allowed` connections at a time, at `rate`; handles further ones by `refuse`.
fn limiting(
    file: &File,
    rate: usize,
    allowed: usize,
    refuse: impl Fn(&mut Peer) + Send + Sync + 'static,
) -> Server {
    let open = AtomicUsize::new(0);
    Server::with(file, move |peer, served| {
        let is_allowed = open.fetch_add(1, Ordering::SeqCst) < allowed;
        if is_allowed {
            peer.serve_at(rate, served);
        }
        // A refused connection takes no place of others.
        open.fetch_sub(1, Ordering::SeqCst);
        if !is_allowed {
            refuse(peer);
        }
    })
}

#[test]
fn a_second_connection_is_refused_or_not_served() {
    const RATE: usize = 20_000_000;
    let file = File::new(content(SIZE, 2));
    let cases: [Option<fn(&mut Peer)>; 4] = [
        // Refused by the kernel.
        None,
        Some(|_| {}),
        Some(|peer| {
            peer.read_request();
            peer.reset();
        }),
        Some(|peer| peer.answer(response("403 Too many", ""))),
    ];
    at_once(cases, |refuse| {
        let serve = || match refuse {
            Some(refuse) => limiting(&file, RATE, 1, refuse),
            None => {
                let served = file.clone();
                Server::once(move |peer| peer.serve_at(RATE, &served))
            }
        };
        each(&["apt", "auto"], serve, |tuner, run, _| {
            let ended = run.fetches(&file.bytes);
            let seen = ["refused", "warning", "connected"].map(|kind| count(&ended, kind));
            let most = if refuse.is_some() { 12 } else { 1 };
            assert!(seen[0] > 0 && seen[1] == 0 && seen[2] <= most, "{tuner}: {seen:?} {ended:?}");
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
            let count = refusals.clone();
            limiting(&file, RATE, allowed, move |peer| {
                count.fetch_add(1, Ordering::SeqCst);
                peer.answer(response(head, ""));
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
