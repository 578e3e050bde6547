//! Connecting: unreachable hosts, untrusted servers, corrupted TLS records.

use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{
    File, Record, Serve, Server, at_once, black_hole, content, damaging, get, reserved_port, skip,
};

/// Earlier progress does not grant an unlimited number of retries.
#[test]
fn a_server_that_dies_in_mid_transfer() {
    let file = File::new(content(3_000_000, 12));
    let (_reserved, address) = reserved_port();
    let listener = TcpListener::bind(address).unwrap();
    let run = get().args(["--retries", "2", "-o", "f", &format!("http://{address}/f")]);
    let running = run.start();
    let (stream, _) = listener.accept().unwrap();
    drop(listener);
    Server::play(stream, |peer| peer.break_off(&file, 1_000_000));
    running.end().fails(69, &["cannot connect to", "refused"]);
    run.is_resumable();
}

#[test]
fn a_host_that_is_unknown_refuses_or_does_not_answer() {
    let run = get().args(["-o", "f", "http://127.0.0.1:1/f"]);
    run.fails_without_files(69, &["cannot connect to", "127.0.0.1:1", "refused"]);
    let (_listener, _accepted, address) = black_hole();
    let run = get().args(["--connect-timeout", "500ms", "-o", "f", &format!("http://{address}/f")]);
    run.run().fails(75, &["cannot connect to", &address.to_string(), "no answer within 500ms"]);
    let run = get().args(["--connect-timeout", "3s", "http://no-such-host.invalid/f"]);
    let ended = run.run();
    // Without a name service the lookup may time out first.
    assert!(matches!(ended.status.code(), Some(68 | 75)), "{ended:?}");
    assert!(ended.error().contains("cannot find the host no-such-host.invalid"), "{ended:?}");
}

#[test]
fn connect_timeout_covers_the_handshakes_of_tls_and_of_a_proxy() {
    // The kernel accepts the connections, and nothing answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let of_proxy = |scheme: &str| format!("{scheme}://{address}");
    for (args, step) in [
        (&["-k", &of_proxy("https")][..], "the TLS handshake"),
        (&["-x", &of_proxy("http"), "https://127.0.0.1:1/x"], "head"),
        (&["-x", &of_proxy("socks5"), "http://127.0.0.1:1/x"], "the proxy's handshake"),
    ] {
        let run = get().args(["--connect-timeout", "600ms", "--retries", "0"]).args(args);
        run.run().fails(75, &[step, "within 600ms"]);
    }
}

#[test]
fn ipv6_literals() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return skip("this host has no IPv6") };
    let file = File::new(content(50_000, 2));
    let served = file.clone();
    let server = Server::on(listener, move |peer| peer.serve(&served));
    get().args([&server.url("/f")]).fetches(&file.bytes);
    assert_eq!(server.requests()[0].field("host"), Some(server.address.to_string().as_str()));
}

/// Fetches a file through a relay that flips a bit of the records selected by `hits`, of the first
/// connection or of all; ends with success, or 75 and an error, over so many connections.
fn fetch_past(
    streams: &str,
    hits: fn(&Record) -> bool,
    error: Option<&str>,
    expected: RangeInclusive<usize>,
) {
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
    let args = ["--streams", streams, "--retries", "3", "--json", "-o", "f", &url, "--cacert"];
    let run = get().args(args).args([site.ca()]);
    let ended = match error {
        Some(error) => run.run().fails(75, &[error]),
        None => run.fetches(&bytes),
    };
    let connections = connections.load(Ordering::SeqCst);
    assert!(expected.contains(&connections), "{connections} connections: {ended:?}");
}

const IN_HEAD: fn(&Record) -> bool = |record| record.from_server && record.requests == 2;
const IN_HANDSHAKE: fn(&Record) -> bool = |record| record.from_server && record.number == 0;
/// Early: other connections leave at least this to the first.
const IN_BODY: fn(&Record) -> bool = |record| record.from_server && record.number == 20;
const IN_REQUEST: fn(&Record) -> bool = |record| !record.from_server && record.requests == 2;

#[test]
fn a_bit_that_flips_costs_one_connection() {
    at_once([IN_HEAD, IN_HANDSHAKE, IN_BODY, IN_REQUEST], |hits| fetch_past("1", hits, None, 2..=2));
    fetch_past("4", IN_BODY, None, 2..=5);
}

#[test]
fn bits_that_always_flip_end_the_transfer_after_the_retries() {
    // Before 64 KiB have arrived, which would count as progress.
    at_once([(IN_HEAD, "cannot receive from"), (IN_HANDSHAKE, "cannot decrypt")], |(hits, error)| {
        fetch_past("1", hits, Some(error), 4..=4);
    });
}
