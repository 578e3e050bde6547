//! `--initial-window`: what transfers receive within an RTT.

use std::time::Duration;

use longhaul_core::units::Bytes;

use super::long_path::{LongPath, fetch, once, ours, routes, settled};

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
        // Half of the path's rate for half an RTT would be 430 segments, but the rate found at first is lower.
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
