//! Corrupted TLS records: each breaks its connection, and the transfer continues over another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Record, Serve, at_once, content, damaging, get};

/// Fetches a file through a relay that flips a bit of the records selected by `hits`, of the first connection or of all; ends with success,
/// or 75 and an error. Returns the number of connections.
fn fetch(streams: &str, hits: fn(&Record) -> bool, error: Option<&str>) -> usize {
    let site = Serve::start();
    let bytes = content(24 << 20, 1);
    site.file("f", &bytes);
    let address = site.tls_url("").replace("https://localhost", "127.0.0.1").parse().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let (most, always) = (connections.clone(), error.is_some());
    let relay = damaging(address, move |record| {
        most.fetch_max(record.connection + 1, Ordering::SeqCst);
        (always || record.connection == 0) && hits(record)
    });
    let url = format!("https://localhost:{}/f", relay.address.port());
    let args = ["--streams", streams, "--retries", "3", "-o", "f", &url, "--cacert"];
    let run = get().args(args).args([site.ca()]);
    match error {
        Some(error) => drop(run.run().fails(75, &[error])),
        None => drop(run.fetches(&bytes)),
    }
    connections.load(Ordering::SeqCst)
}

const IN_HEAD: fn(&Record) -> bool = |record| record.from_server && record.requests == 2;
const IN_HANDSHAKE: fn(&Record) -> bool = |record| record.from_server && record.number == 0;
/// Early: other connections leave at least this to the first.
const IN_BODY: fn(&Record) -> bool = |record| record.from_server && record.number == 20;
const IN_REQUEST: fn(&Record) -> bool = |record| !record.from_server && record.requests == 2;

#[test]
fn a_bit_that_flips_costs_one_connection() {
    at_once([IN_HEAD, IN_HANDSHAKE, IN_BODY, IN_REQUEST], |hits| assert_eq!(fetch("1", hits, None), 2));
    assert!((2..=5).contains(&fetch("4", IN_BODY, None)));
}

#[test]
fn bits_that_always_flip_end_the_transfer_after_the_retries() {
    // Before 64 KiB have arrived, which would count as progress.
    at_once([(IN_HEAD, "cannot receive from"), (IN_HANDSHAKE, "cannot decrypt")], |(hits, error)| {
        assert_eq!(fetch("1", hits, Some(error)), 4, "{error}");
    });
}
