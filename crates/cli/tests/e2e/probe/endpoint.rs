//! Requests to the measurement endpoint, and facts that it reports.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::probe::{answering, measuring, misses, probe, report};
use crate::support::lab::{exec_in, last_object, no_lab, ran};
use crate::support::{longhaul, serve};

/// RTT and UDP port are those of the final host, not of the redirecting one.
#[test]
fn endpoint_of_the_host_that_a_redirect_names_is_used_with_its_token() {
    let run = longhaul("probe");
    fs::write(run.path("token"), "s3cret").unwrap();
    fs::set_permissions(run.path("token"), Permissions::from_mode(0o600)).unwrap();
    let token = run.path("token").to_str().unwrap().to_owned();
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("f"), "small").unwrap();
    let (_server, url) = serve(site.path(), &["--measure=50Mbit", "--token", &token]);
    let refused = report(&probe(&[&format!("{url}/f"), "--json"]));
    assert!(misses(&refused, "--token FILE") && refused["server"]["measures"] == false, "{refused}");

    let to = format!("{url}/f");
    let first = answering(move |_| (format!("302 Found\r\nLocation: {to}"), Vec::new()));
    let target = format!("http://localhost:{}/f", first.address.port());
    let run = run.args([&target, "--json", "--token", &token]);
    let allowed = report(&run.run());
    assert_eq!(allowed["peer"], url.strip_prefix("http://").unwrap(), "{allowed}");
    assert!(misses(&allowed, "it redirects to http://127.0.0.1"), "{allowed}");
    assert!(allowed["rtt"].to_string().contains("udp-echo"), "{allowed}");
    assert_eq!(allowed["server"]["measures"], true, "{allowed}");
    // The ceiling is the server's, not the path's, and must not limit a transfer.
    assert_eq!(allowed["server"]["ceiling_bps"], 50_000_000, "{allowed}");
    assert_eq!(allowed["udp_ceiling"]["set_by"], "server", "{allowed}");
    assert_eq!(allowed["verdict"]["remembered"], false, "{allowed}");
    assert!(!run.path(".local/state/longhaul/paths.json").exists(), "{allowed}");
}

/// A request without the number would count as a second probe, which shares the ceiling.
#[test]
fn sweep_has_a_row_for_each_number_buffer_and_control_and_names_its_probe_in_each_request() {
    let server = measuring(|| ("403 Forbidden".to_owned(), Vec::new()));
    let run = longhaul("probe");
    let run = run.args([&server.address.to_string(), "--full", "--json", "--plot", "probe.svg"]);
    let report = report(&run.run().ok());
    let requests = server.requests();
    let number = requests[0].field("longhaul-probe");
    assert!(number.is_some(), "{requests:?}");
    assert!(requests.iter().all(|request| request.field("longhaul-probe") == number), "{requests:?}");
    for option in ["send_buffer=", "congestion=reno"] {
        assert!(requests.iter().any(|request| request.target.contains(option)), "{requests:?}");
    }
    let rows = report["tcp"].as_array().unwrap();
    let plain = rows.iter().filter(|row| row["buffer"].is_null() && row["congestion"].is_null());
    let streams: Vec<_> = plain.map(|row| row["streams"].as_u64().unwrap()).collect();
    assert_eq!(streams, [1, 2, 4, 8, 16], "{report}");
    let buffers: Vec<_> = rows.iter().filter_map(|row| row["buffer"].as_u64()).collect();
    assert_eq!(buffers, [64 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20, 64 << 20], "{report}");
    assert!(rows.iter().any(|row| row["congestion"] == "reno"), "{report}");
    let drawn = fs::read_to_string(run.path("probe.svg")).unwrap();
    for words in
        ["TCP by number of connections", "TCP by socket buffer", "TCP by congestion control", ">reno<"]
    {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
}

/// The lab's `server` resolves to an IPv6 address before its IPv4 address, but listens on IPv4 only; and pings are not permitted.
#[test]
fn refusing_address_is_passed_over_and_handshakes_give_the_rtt() {
    if no_lab() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("f"), "small").unwrap();
    let path = ["--rate", "100Mbit", "--rtt", "40ms", "--server-port", "8080"];
    let server = ["--server", "exec longhaul serve . --listen $LAB_SERVER:8080"];
    let client =
        "echo '1 0' > /proc/sys/net/ipv4/ping_group_range; exec longhaul probe http://server:8080/f --json";
    let report = last_object(&ran(exec_in(home.path(), &[&path[..], &server].concat(), client)).ok());
    assert_eq!(report["peer"], "198.18.0.2:8080", "{report}");
    assert!(misses(&report, "ICMP echo: not permitted (sysctl net.ipv4.ping_group_range"), "{report}");
    assert!(misses(&report, "it would have shown the RTT without the server's TCP"), "{report}");
    assert_eq!(report["rtt"][0]["method"], "tcp-handshake", "{report}");
    assert!(report["rtt"][0]["min"].as_f64().unwrap() >= 0.04, "{report}");
}
