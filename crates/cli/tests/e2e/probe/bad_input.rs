//! Targets that cannot be measured: each has its own message and exit code.

use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::probe::{answering, measuring, misses, probe, report};
use crate::support::{Server, black_hole, longhaul};

#[test]
fn invalid_arguments_are_refused() {
    for (args, code, words) in [
        (&["gopher://h/"][..], 64, "write a host, or a URL"),
        (&["http://"], 64, "write a host, or a URL"),
        (&["a b"], 64, "write a host, or a URL"),
        (&["127.0.0.1:1", "--plot", "probe.pdf"], 64, "probe.pdf"),
        (&["127.0.0.1:1", "--ceiling", "10M"], 64, "write 10Mbit or 10MiB"),
        (&["127.0.0.1:1", "--ceiling", "0"], 64, "1Mbit or more"),
        (&["127.0.0.1:1", "--ceiling", "fast"], 64, "--ceiling"),
        // No UDP is sent.
        (&["127.0.0.1:1", "--upload", "--ceiling", "10Mbit"], 64, "--upload"),
        (&["127.0.0.1:1", "--token", "/nonexistent/token"], 66, "/nonexistent/token"),
    ] {
        let ended = probe(args);
        assert!(ended.status.code() == Some(code) && ended.stderr.contains(words), "{args:?}: {ended:?}");
    }
    // No server listens: the first error shows what is checked first.
    let file = tempfile::NamedTempFile::new().unwrap();
    for plot in [file.path().join("p.svg"), "/nonexistent/p.svg".into()] {
        let plot = plot.to_str().unwrap();
        let ended = probe(&["127.0.0.1:1", "--plot", plot]).fails(73, &[plot]);
        assert!(ended.error().ends_with("; choose another place with --plot"), "{ended:?}");
        assert!(!ended.stderr.contains(".longhaul-"), "{ended:?}");
    }
}

#[test]
fn unreachable_hosts_are_named() {
    // Without a name service the error is temporary.
    let ended = probe(&["http://no-such-host.invalid/f"]);
    assert!(matches!(ended.status.code(), Some(68 | 75)), "{ended:?}");
    assert!(ended.stderr.contains("cannot find the host no-such-host.invalid"), "{ended:?}");

    probe(&["127.0.0.1:1"]).fails(69, &["refused"]);

    let (_listener, _fill, address) = black_hole();
    let ended = probe(&[&address.to_string()]);
    assert!(matches!(ended.status.code(), Some(69 | 75)), "{ended:?}");
    assert!(ended.stderr.contains("firewall") || ended.stderr.contains("no answer"), "{ended:?}");

    // A connection in the state SYN_SENT (include/net/tcp_states.h).
    let connecting = format!(":{:04X} 02 ", address.port());
    let is_connecting = || std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&connecting);
    let run = longhaul("probe").args([&address.to_string()]);
    assert_eq!(run.signalled(Signal::INT, "a SYN was sent", is_connecting).status.signal(), Some(2));
}

#[test]
fn garbage_is_reported_and_the_rtt_is_kept() {
    let server = Server::answering(b"\x00\x01garbage\r\n\r\n");
    let ended = probe(&[&server.address.to_string(), "--json"]).fails(76, &[]);
    let report = report(&ended);
    assert!(report["rtt"][0]["min"].as_f64().unwrap() < 1.0, "{report}");
    let last = report["missing"].as_array().unwrap().last().unwrap();
    assert!(last.as_str().unwrap().contains("HTTP"), "{report}");
}

#[test]
fn garbage_of_a_measurement_endpoint_is_reported() {
    let server = answering(|request| {
        let is_file = !request.target.starts_with("/.longhaul");
        let body: &[u8] = if is_file { b"file" } else { b"{\"version\":\"one\"}" };
        ("200 OK\r\nServer: longhaul".to_owned(), body.to_vec())
    });
    probe(&[&server.address.to_string(), "--json"]).fails(76, &["cannot use the measurement endpoint"]);
}

#[test]
fn missing_and_stalled_responses_get_no_verdict() {
    for sent in [0, 3_000_000] {
        let server = Server::new(move |peer| {
            while peer.read_request().is_some() {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                peer.send(vec![7; sent]);
            }
        });
        let ended = probe(&[&server.address.to_string(), "--json"]);
        let report = report(&ended);
        assert!(report["verdict"]["rate_bps"].is_null(), "{report}");
        // If data come late, the time of the measurement may end before the timeout of the silence.
        let is_late = sent > 0 && misses(&report, "TCP with 1 connections: too little arrived");
        let why = if is_late { "no rate was measured at " } else { "sent too little of its file within" };
        ended.fails(75, &[why]);
    }
}

#[test]
fn blocked_udp_is_reported_and_tcp_is_measured() {
    // The port never answers, as behind a firewall.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let server = measuring(move || {
        let udp = format!(r#"{{"port":{port},"nonce":"{}","bytes":1,"seconds":9}}"#, "0a".repeat(16));
        ("200 OK\r\nServer: longhaul".to_owned(), udp.into())
    });
    let report = report(&probe(&[&server.address.to_string(), "--json"]).ok());
    assert!(misses(&report, "UDP: blocked on the way"), "{report}");
    assert!(report["tcp"][0]["payload_bps"].as_u64().unwrap() > 0, "{report}");
}
