//! Streams that bring nothing, or next to nothing: others take over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Chosen, SIZE, each_and, events, serve_slowly};
use crate::support::{File, Peer, Server, content, same};

/// Fetches while the second connection serves by `stall`, for less time than a stall may take.
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
    for Chosen { run, who, .. } in each_and("4", serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(stalled.swap(0, Ordering::SeqCst), 1, "{who}");
        assert!(ended.time < Duration::from_secs(15), "{who}: {:?}", ended.time);
    }
}

#[test]
fn a_stream_that_stalls_in_the_midst_does_not_hold_the_end() {
    with_one_that_stalls(|peer, file| {
        let Some(ask) = peer.ask() else { return };
        let (head, body) = file.answer(&ask);
        peer.send(head);
        peer.send(&body[..body.len() / 2]);
    });
}

#[test]
fn a_stream_that_is_never_answered_does_not_hold_the_end() {
    with_one_that_stalls(|peer, _| drop(peer.ask()));
}

/// The others are connected, and never heard until the first closes.
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
    for Chosen { run, who, .. } in each_and("8", serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(ended.time < Duration::from_secs(5), "{who}: {:?}", ended.time);
        // Who chooses the number takes it for a refusal, and does not come back at once.
        let obeyed = events(&ended, "refused").count() > 0 && events(&ended, "connected").count() <= 8;
        assert!(obeyed || who == "fixed", "{who}: {ended:?}");
    }
}

/// Slower by a factor of a hundred, and never silent.
#[test]
fn a_stream_that_crawls_does_not_hold_the_end() {
    with_one_that_stalls(|peer, file| {
        peer.serve_at(80_000, file);
    });
}
