//! Answers that are not what was asked for.

use std::time::Duration;

use super::{Chosen, SIZE, each, each_and, events, serve_slowly};
use crate::support::{File, Server, content, same};

#[test]
fn a_server_without_ranges_has_one_stream() {
    let file = File { ranges: false, ..File::new(content(SIZE / 8, 4)) };
    for Chosen { run, who, server } in each(|| Server::of(file.clone())) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(
            (events(&ended, "connected").count(), ended.done()["streams"].as_u64()),
            (1, Some(1)),
            "{who}"
        );
        assert_eq!(server.asks().len(), 1, "{who}");
    }
}

/// A cluster of which one member ignores ranges: what it sends is not used.
#[test]
fn ranges_that_some_connections_ignore() {
    let file = File::new(content(SIZE / 2, 5));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| {
            let ranges = peer.number % 3 != 1;
            serve_slowly(peer, &File { ranges, ..served.clone() });
        })
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        // The second is given up with the first answer, and another connection comes instead.
        assert!(events(&ended, "connected").count() >= 3, "{who}: {ended:?}");
    }
}

/// A load balancer with one stale backend: what that sends is not used, and the transfer goes on with the others.
#[test]
fn another_file_on_one_connection_is_fetched_from_the_others() {
    let (file, other) = (File::new(content(SIZE, 6)), File::new(content(SIZE, 7)));
    let serve = || balanced(&file, &other, |connection| connection == 2);
    for Chosen { run, who, .. } in each_and("4", serve) {
        run.run().ok();
        same(run.path("f"), &file.bytes);
        println!("{who}");
    }
}

#[test]
fn another_file_on_every_further_connection_ends_in_bounded_time() {
    let (file, other) = (File::new(content(SIZE, 6)), File::new(content(SIZE, 7)));
    // The first connection holds only the first answer.
    let serve = || balanced(&file, &other, |connection| connection > 0);
    for Chosen { run, who, .. } in each_and("4", serve) {
        let ended = run.run().fails(65, &["changed on the server", "--no-resume"]);
        assert!(!run.path("f").exists(), "{who}: {ended:?}");
        assert!(ended.time < Duration::from_secs(15), "{who}: {ended:?}");
    }
}

/// Serves `file`, and `other` on the connections that `is_stale` names; the first connection ends after one answer.
fn balanced(file: &File, other: &File, is_stale: fn(usize) -> bool) -> Server {
    let (file, other) = (file.clone(), File { etag: Some("\"v2\""), ..other.clone() });
    Server::new(move |peer| {
        let served = if is_stale(peer.number) { &other } else { &file };
        while let Some(mut ask) = peer.ask() {
            ask.head = ask.head.replace("If-Range", "X-Ignored");
            let (head, body) = served.answer(&ask);
            if !peer.send(head) || !peer.trickle(body, 8_000_000) {
                return;
            }
            if peer.number == 0 {
                return peer.close();
            }
        }
    })
}

/// Answers with less than was asked for, now slowly and now fast: what one takes over from another ends where an answer does.
#[test]
fn short_answers_and_takeovers_are_put_together() {
    let file = File::new(content(SIZE, 15));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| {
            let rate = if peer.number % 2 == 0 { 60_000_000 } else { 1_500_000 };
            peer.serve_by(rate, |mut ask| {
                let (start, end) = ask.range(SIZE).unwrap();
                ask.head = format!("Range: bytes={start}-{}\r\n", end.min(start + 700_000) - 1);
                served.answer(&ask)
            });
        })
    };
    for Chosen { run, who, .. } in each_and("6", serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(ended.time < Duration::from_secs(20), "{who}: {:?}", ended.time);
    }
}

/// Some servers answer If-Range with the whole file whatever it says; the marks of each answer tell as much.
#[test]
fn a_server_that_takes_no_if_range_is_asked_without() {
    let file = File::new(content(SIZE, 16));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| {
            let whole = File { ranges: false, ..served.clone() };
            peer.serve_by(8_000_000, |ask| {
                if ask.field("if-range").is_some() { whole.answer(&ask) } else { served.answer(&ask) }
            });
        })
    };
    for Chosen { run, who, .. } in each_and("4", serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(ended.done()["streams"].as_u64() > Some(1), "{who}: {ended:?}");
    }
}
