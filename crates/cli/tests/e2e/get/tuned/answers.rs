//! Unexpected and stalling responses to tuned transfers.

use std::sync::{Arc, Mutex};

use super::{RATE, SIZE, count, each};
use crate::support::{File, Peer, Server, at_once, content};

#[test]
fn a_server_without_ranges_has_one_stream() {
    let file = File { ranges: false, ..File::new(content(SIZE / 8, 4)) };
    each(
        &["apt", "auto", "4"],
        || Server::of(file.clone()),
        |tuner, run, server| {
            let ended = run.fetches(&file.bytes);
            let found =
                (count(&ended, "connected"), ended.done()["streams"].as_u64(), server.requests().len());
            assert_eq!(found, (1, Some(1), 1), "{tuner}");
            assert!(tuner != "4" || ended.stdout.contains("no ranges"), "{ended:?}");
        },
    );
}

/// One member of a cluster ignores ranges: its responses are not used.
#[test]
fn ranges_that_some_connections_ignore() {
    let file = File::new(content(SIZE / 2, 5));
    let serve = || {
        Server::with(&file, move |peer, served| {
            peer.serve_at(RATE, &File { ranges: peer.number % 3 != 1, ..served.clone() });
        })
    };
    each(&["apt", "auto"], serve, |tuner, run, _| {
        let ended = run.fetches(&file.bytes);
        // The second connection is closed after its first response, and another one replaces it.
        assert!(count(&ended, "connected") >= 3, "{tuner}: {ended:?}");
    });
}

/// Serves `file`, and `other` on the connections selected by `is_stale`; the first connection
/// closes after one response.
fn balanced(file: &File, other: &File, is_stale: fn(usize) -> bool) -> Server {
    let (file, other) = (file.clone(), File { etag: Some("\"v2\""), ..other.clone() });
    Server::new(move |peer| {
        let served = if is_stale(peer.number) { &other } else { &file };
        while let Some(mut request) = peer.read_request() {
            request.head = request.head.replace("If-Range", "X-Ignored");
            let (head, body) = served.answer(&request);
            if !peer.send(head) || !peer.trickle(body, RATE) {
                return;
            }
            if peer.number == 0 {
                return peer.close();
            }
        }
    })
}

/// Stale backends of a load balancer: their responses are not used. One costs nothing; if all
/// connections but the first, which serves only the first response, lead to one, the transfer ends
/// in bounded time.
#[test]
fn another_file_on_further_connections_is_not_used() {
    let (file, other) = (File::new(content(SIZE, 6)), File::new(content(SIZE, 7)));
    at_once([false, true], |all_are_stale| {
        let is_stale: fn(usize) -> bool =
            if all_are_stale { |connection| connection > 0 } else { |connection| connection == 2 };
        each(
            &["apt", "auto", "4"],
            || balanced(&file, &other, is_stale),
            |_, run, _| match all_are_stale {
                true => drop(run.fails_unnamed(65, &["changed on the server", "--no-resume"])),
                false => drop(run.fetches(&file.bytes)),
            },
        );
    });
}

/// Sends less than requested, alternately slow and fast: a takeover's range ends where a response
/// ends.
#[test]
fn short_responses_and_takeovers_are_combined() {
    let file = File::new(content(SIZE, 15));
    let serve = || {
        Server::with(&file, move |peer, served| {
            let rate = if peer.number % 2 == 0 { 60_000_000 } else { 1_500_000 };
            peer.serve_by(rate, |mut request| {
                let (start, end) = request.range(SIZE).unwrap();
                request.head = format!("Range: bytes={start}-{}\r\n", end.min(start + 700_000) - 1);
                served.answer(&request)
            });
        })
    };
    each(&["apt", "auto", "6"], serve, |_, run, _| drop(run.fetches(&file.bytes)));
}

/// Some servers answer any If-Range with the whole file; the validators of responses suffice.
#[test]
fn server_without_if_range_gets_plain_range_requests() {
    let file = File::new(content(SIZE, 16));
    let serve = || {
        Server::with(&file, move |peer, served| {
            let whole = File { ranges: false, ..served.clone() };
            let of = |if_range: Option<&str>| if if_range.is_some() { &whole } else { served };
            peer.serve_by(RATE, |request| of(request.field("if-range")).answer(&request));
        })
    };
    each(&["apt", "auto", "4"], serve, |tuner, run, _| {
        let ended = run.fetches(&file.bytes);
        assert!(ended.done()["streams"].as_u64() > Some(1), "{tuner}: {ended:?}");
    });
}

/// The second connection stalls, for less than the stall timeout.
#[test]
fn a_stream_that_stalls_does_not_hold_the_end() {
    let file = File::new(content(SIZE / 2, 8));
    let cases: [fn(&mut Peer, &File); 3] = [
        |peer, file| {
            peer.begin(file, 400_000);
            peer.stay_silent();
        },
        |peer, _| peer.stay_silent(),
        // Slower by a factor of a hundred, but never idle.
        |peer, file| peer.serve_at(RATE / 100, file),
    ];
    at_once(cases, |stall| {
        let stalled = Arc::new(Mutex::new(0));
        let serve = || {
            let (served, count) = (file.clone(), stalled.clone());
            Server::new(move |peer| {
                if peer.number == 1 {
                    *count.lock().unwrap() += 1;
                    stall(peer, &served);
                } else {
                    peer.serve_at(RATE, &served);
                }
            })
        };
        each(&["apt", "auto", "4"], serve, |_, run, _| drop(run.fetches(&file.bytes)));
        assert_eq!(*stalled.lock().unwrap(), 3);
    });
}

/// The other connections are accepted, but get no response until the first closes.
#[test]
fn a_server_of_one_connection_at_a_time_does_not_hold_the_end() {
    let file = File::new(content(SIZE, 18));
    let serve = || {
        let (served, turn) = (file.clone(), Mutex::new(()));
        Server::new(move |peer| {
            let _turn = turn.lock().unwrap();
            peer.serve_at(40_000_000, &served);
        })
    };
    each(&["apt", "auto", "8"], serve, |tuner, run, _| {
        let ended = run.fetches(&file.bytes);
        // A tuner treats this as a refusal, and does not reconnect at once.
        let obeyed = count(&ended, "refused") > 0 && count(&ended, "connected") <= 8;
        assert!(obeyed || tuner == "8", "{tuner}: {ended:?}");
    });
}
