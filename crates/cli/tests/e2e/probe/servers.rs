//! Facts that servers report, with and without a measurement endpoint, and requests to it.

use std::fs;
use std::net::TcpListener;

use crate::probe::{answering, measuring, misses, probe, report};
use crate::support::lab::{exec_in, last_object, needs_lab, ran};
use crate::support::{Iperf3, Scripted, Server, longhaul, serve, write_secret};

#[test]
fn http_server_is_measured_by_connections_to_a_large_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), vec![7; 64 << 20]).unwrap();
    fs::write(dir.path().join("small"), "small").unwrap();
    let (_server, url) = serve(dir.path(), &[]);
    let measured = report(&probe(&[&format!("{url}/f"), "--json", "--size", "1GiB"]).ok());
    let streams: Vec<_> = measured["tcp"].as_array().unwrap().iter().map(|row| &row["streams"]).collect();
    assert_eq!(streams, [1, 4], "{measured}");
    let server = &measured["server"];
    assert!(server["ranges"] == true && server["size"] == 64 << 20, "{measured}");
    assert_eq!(measured["verdict"]["size"], 1 << 30, "{measured}");
    assert!(misses(&measured, "serve --measure"), "{measured}");
    for (path, words) in [("small", "name a larger one"), ("none", "404")] {
        let report = report(&probe(&[&format!("{url}/{path}"), "--json"]).ok());
        assert!(misses(&report, words) && report["tcp"].as_array().unwrap().is_empty(), "{report}");
    }
}

#[test]
fn server_that_refuses_ranges_gets_one_connection() {
    let server = answering(|_| ("200 OK".to_owned(), vec![1; 16 << 20]));
    let report = report(&probe(&[&server.url("/f"), "--json"]).ok());
    assert_eq!((&report["server"]["ranges"], &report["verdict"]["streams"]), (&false.into(), &1.into()));
    assert_eq!(report["tcp"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn features_of_an_ftp_server_are_reported() {
    let features = "211-Features\r\n REST STREAM\r\n PARALLEL\r\n211 End";
    let server = Scripted::answering(Vec::new(), [("FEAT", features), ("USER", "530 No")]);
    let report = report(&probe(&[&server.url(), "--json"]).ok());
    assert_eq!((&report["server"]["protocol"], &report["server"]["ranges"]), (&"ftp".into(), &true.into()));
    assert!(report["server"]["features"].to_string().contains("MODE E"), "{report}");
    assert!(misses(&report, "TCP throughput: "), "{report}");
    let other = Scripted::answering(Vec::new(), [("", "SSH-2.0-other")]);
    probe(&[&other.url()]).fails(76, &["cannot use the reply of"]);
}

#[test]
fn server_other_than_iperf3_and_missing_iperf3_are_reported() {
    let Some(_) = Iperf3::start() else { return };
    // The banner is no iperf3 message.
    let server = Server::new(|peer| {
        let mut buffer = [0; 64];
        while matches!(std::io::Read::read(&mut peer.stream, &mut buffer), Ok(1..)) {
            peer.send("SSH-2.0-other\r\n");
        }
    });
    let target = format!("iperf3://{}", server.address);
    let ended = probe(&[&target, "--json"]).fails(69, &["cannot measure with iperf3 at 127.0.0.1:"]);
    let report = report(&ended);
    assert!(misses(&report, "cannot measure with iperf3"), "{report}");
    assert!(report["verdict"]["rate_bps"].is_null(), "{report}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("iperf3://{}", listener.local_addr().unwrap());
    let run = longhaul("probe").args([&target]);
    let nowhere = run.dir().to_str().unwrap().to_owned();
    run.env("PATH", nowhere).run().fails(71, &["apt install iperf3"]);
}

/// RTT and UDP port are those of the final host, not of the redirecting one.
#[test]
fn endpoint_of_the_host_that_a_redirect_names_is_used_with_its_token() {
    let run = longhaul("probe");
    write_secret(run.path("token"), "s3cret");
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
    let buffers: Vec<_> = rows.iter().filter_map(|row| row["buffer"].as_u64()).collect();
    // What a busy host had no time for is named instead, each by itself.
    for number in [1, 2, 4, 8, 16] {
        let named = || misses(&report, &format!("TCP with {number} connections: too little arrived"));
        assert!(streams.contains(&number) || named(), "{number}: {report}");
    }
    assert_eq!(buffers, [64 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20, 64 << 20], "{report}");
    assert!(rows.iter().any(|row| row["congestion"] == "reno"), "{report}");
    let drawn = fs::read_to_string(run.path("probe.svg")).unwrap();
    for words in
        ["TCP by number of connections", "TCP by socket buffer", "TCP by congestion control", ">reno<"]
    {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
}

/// The lab's `server` resolves to an IPv6 address before its IPv4 address, but listens on IPv4
/// only; and pings are not permitted.
#[test]
fn refusing_address_is_passed_over_and_handshakes_give_the_rtt() {
    let Some(()) = needs_lab() else { return };
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
