//! Corrupted TLS records: each breaks its connection, and the transfer continues over another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Ended, Record, Serve, content, damaging, get};

const SIZE: usize = 24 << 20;

/// Fetches a file through a relay that corrupts the records selected by `hits`.
fn fetch(args: &[&str], hits: impl Fn(&Record) -> bool + Send + Sync + 'static) -> (Ended, usize) {
    let site = Serve::start();
    let bytes = content(SIZE, 1);
    site.file("f", &bytes);
    let address = site.tls_url("").replace("https://localhost", "127.0.0.1").parse().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let most = connections.clone();
    let relay = damaging(address, move |record| {
        most.fetch_max(record.connection + 1, Ordering::SeqCst);
        hits(record)
    });
    let url = format!("https://localhost:{}/f", relay.address.port());
    let run = get().args(args).args([&url, "--cacert"]).args([site.ca()]);
    let ended = run.run();
    if ended.status.success() {
        run.fetched(&bytes);
    }
    (ended, connections.load(Ordering::SeqCst))
}

#[test]
fn a_bit_that_flips_in_the_body_costs_one_connection() {
    for streams in ["1", "4"] {
        let (ended, connections) = fetch(&["--streams", streams], |record| {
            record.connection == 0 && record.from_server && record.number == 300
        });
        let ended = ended.ok();
        assert!(ended.stderr.contains("cannot receive from"), "{ended:?}");
        assert!((2..=streams.parse::<usize>().unwrap() + 1).contains(&connections), "{connections}");
    }
}

#[test]
fn a_bit_that_flips_in_the_head_or_the_request_costs_one_connection() {
    for from_server in [true, false] {
        let (ended, connections) = fetch(&["--streams", "1"], move |record| {
            record.connection == 0 && record.from_server == from_server && record.requests == 2
        });
        ended.ok();
        assert_eq!(connections, 2, "damaged from the server: {from_server}");
    }
}

#[test]
fn bits_that_always_flip_end_the_transfer_after_the_retries() {
    let (ended, connections) = fetch(&["--streams", "1", "--retries", "3"], |record| {
        // Before 64 KiB have arrived, which would count as progress.
        record.from_server && record.requests == 2
    });
    ended.fails(75, &["cannot receive from"]);
    assert_eq!(connections, 4);
}

#[test]
fn a_bit_that_flips_in_the_handshake_costs_one_connection() {
    let (ended, connections) = fetch(&["--streams", "1"], |record| {
        record.connection == 0 && record.from_server && record.number == 0
    });
    ended.ok();
    assert_eq!(connections, 2);
    let (ended, connections) =
        fetch(&["--streams", "1", "--retries", "2"], |record| record.from_server && record.number == 0);
    ended.fails(75, &["cannot decrypt"]);
    assert_eq!(connections, 3);
}
