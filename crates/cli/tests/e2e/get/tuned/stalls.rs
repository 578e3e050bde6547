//! Stalled and very slow streams: others take over their ranges.

use std::sync::{Arc, Mutex};

use super::{RATE, SIZE, count, each};
use crate::support::{File, Peer, Server, at_once, content};

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
