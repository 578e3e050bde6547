//! `--initial-window`, and a client's path memory: what transfers receive within an RTT.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::Host;

use super::long_path::{LongPath, connect, fetch, once, ours, routes, settled};

/// The kernel's default initial window (RFC 6928).
const TEN_SEGMENTS: Bytes = Bytes::new(10 * 1460);
/// Longer than the server takes to remove an expired route.
const REMOVED_BY_THEN: Duration = Duration::from_millis(1500);

#[test]
fn the_second_transfer_begins_with_more_than_ten_segments_and_the_routes_go_with_the_server() {
    let Some(path) = LongPath::with_file(16 << 20) else { return };
    let before = settled(&path.server());
    let server = path.serve(&["--initial-window", "auto"]);
    for (n, address) in path.addresses().into_iter().enumerate() {
        let unknown = fetch(&path.client(), address, "");
        assert!(unknown <= TEN_SEGMENTS, "{address}: {unknown} at first");
        server.logged("status=200");
        once(&path.server(), |routes| ours(routes) == n + 1);
        let known = fetch(&path.client(), address, "");
        // Half of the path's rate for half an RTT would be 430 segments, but the rate found at
        // first is lower.
        assert!(known.get() > 10 * TEN_SEGMENTS.get(), "{address}: {known} at second");
        server.logged("status=200");
    }
    assert!(server.stop().status.success());
    assert_eq!(routes(&path.server()), before, "the routes are as they were");
}

#[test]
fn a_rate_of_the_servers_own_and_a_window_that_was_named() {
    let Some(path) = LongPath::with_file(6 << 20) else { return };
    let server = path.serve(&["--pace", "40Mbit", "--initial-window", "30"]);
    let address = path.addresses()[0];
    fetch(&path.client(), address, "");
    assert!(server.logged("begin with this window").contains("segments=30"));
    let known = fetch(&path.client(), address, "");
    assert!(known > TEN_SEGMENTS + TEN_SEGMENTS && known.get() <= 30 * 1460, "{known}");
    // A client's request for a lower pace does not lower the known rate.
    fetch(&path.client(), address, "Longhaul-Pace: 20Mbit\r\n");
    std::thread::sleep(REMOVED_BY_THEN);
    assert_eq!(ours(&routes(&path.server())), 1);
    assert!(server.stop().status.success());
}

/// The minimum relevant rate: half of it is eleven segments per RTT, one more than the kernel's
/// initial window.
const HELD: Rate = Rate::bits_per_sec(1_300_000);
/// The measured time of a reply.
const START: Duration = Duration::from_secs(1);

/// Requests `/file` with a remembered rate for a path with this RTT in seconds; returns the bytes
/// received within [`START`] after the first byte.
fn start(host: &Host, server: SocketAddr, rtt: f64) -> Bytes {
    let memory = format!("held={};rtt={rtt}", HELD.as_bits_per_sec());
    let fetch = move || {
        let mut stream = connect(server);
        write!(stream, "GET /file HTTP/1.1\r\nHost: h\r\nLonghaul-Pace: auto;{memory}\r\n\r\n").unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut got = stream.read(&mut buffer).unwrap();
        let end = Instant::now() + START;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Bytes::new(got as u64);
            }
            stream.set_read_timeout(Some(left)).unwrap();
            match stream.read(&mut buffer) {
                Ok(read) => got += read,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    };
    host.run(fetch).unwrap()
}

#[test]
fn a_rate_that_its_client_remembers_slows_no_reply() {
    let Some(path) = LongPath::with_file(16 << 20) else { return };
    // Each from a fresh server: a server's own memory would take precedence. The second RTT is that
    // of another path.
    for rtt in [0.2, 0.05] {
        let _server = path.serve(&[]);
        let got = start(&path.client(), path.addresses()[0], rtt);
        // Slow start, after at least four RTTs.
        assert!(got > HELD.scaled(1.5).bytes_in(START), "{got}, {rtt} s");
    }
}
