//! Stalled and very slow streams: others take over their ranges.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{SIZE, TunedFetch, each_tuner_and_fixed, events, serve_slowly};
use crate::support::{File, Peer, Server, content, same};

/// Fetches while the second connection serves by `stall`, for less than the stall timeout.
fn with_one_that_stalls(stall: impl Fn(&mut Peer, &File) + Send + Sync + Copy + 'static) {
    let file = File::new(content(SIZE / 2, 8));
    let stalled = Arc::new(AtomicUsize::new(0));
    let serve = || {
        let (served, count) = (file.clone(), stalled.clone());
        Server::new(move |peer| {
            if peer.number == 1 {
                count.fetch_add(1, Ordering::SeqCst);
                stall(peer, &served);
                std::thread::sleep(Duration::from_secs(60));
            } else {
                serve_slowly(peer, &served);
            }
        })
    };
    for TunedFetch { run, tuner, .. } in each_tuner_and_fixed("4", serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(stalled.swap(0, Ordering::SeqCst), 1, "{tuner}");
        assert!(ended.time < Duration::from_secs(15), "{tuner}: {:?}", ended.time);
    }
}

#[test]
fn a_stream_that_stalls_in_the_midst_does_not_hold_the_end() {
    with_one_that_stalls(|peer, file| {
        let Some(request) = peer.read_request() else { return };
        let (head, body) = file.answer(&request);
        peer.send(head);
        peer.send(&body[..body.len() / 2]);
    });
}

#[test]
fn a_stream_that_is_never_answered_does_not_hold_the_end() {
    with_one_that_stalls(|peer, _| drop(peer.read_request()));
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
    for TunedFetch { run, tuner, .. } in each_tuner_and_fixed("8", serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(ended.time < Duration::from_secs(5), "{tuner}: {:?}", ended.time);
        // A tuner treats this as a refusal, and does not reconnect at once.
        let obeyed = events(&ended, "refused").count() > 0 && events(&ended, "connected").count() <= 8;
        assert!(obeyed || tuner == "fixed", "{tuner}: {ended:?}");
    }
}

/// Slower by a factor of a hundred, but never idle.
#[test]
fn a_stream_that_crawls_does_not_hold_the_end() {
    with_one_that_stalls(|peer, file| {
        peer.serve_at(80_000, file);
    });
}
