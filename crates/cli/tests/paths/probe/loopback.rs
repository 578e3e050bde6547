//! `longhaul serve --measure` on loopback, where what is sent and found stays below the ceilings;
//! and probes of iperf3 servers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::{fs, thread};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::{on_path, within};
use crate::support::lab::{longhaul_in, needs_lab_with};
use crate::support::running::Running;
use crate::support::{File, Iperf3, MEMORY, Server, longhaul, misses, probe, report, serve};

/// Starts a server of a file of 1 MiB with these options; returns it, its directory and the file's
/// URL.
fn site(measure: &str) -> (Running, TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), vec![7; 1 << 20]).unwrap();
    let (server, url) = serve(dir.path(), &[measure]);
    (server, dir, format!("{url}/f"))
}

#[test]
fn path_is_measured_and_drawn() {
    let (_server, _dir, url) = site("--measure=200Mbit");
    let run = longhaul("probe").args([&url, "--json", "--plot", "probe.svg"]);
    let report = report(&run.run().ok());
    let rows = report["udp"].as_array().unwrap();
    let messages: Vec<_> = rows.iter().map(|row| row["message"].as_u64().unwrap()).take(3).collect();
    assert_eq!(messages, [64, 1024, 1472], "{report}");
    assert!(within(&report["path"]["rate"]["rate_bps"], 1e8..12e8), "{report}");
    // One connection only: the first ten segments of each connection are unpaced, and loopback's
    // have 64 KiB, so that several connections would end below the ceiling. The server's tests
    // measure several.
    assert!(within(&report["tcp"][0]["payload_bps"], 1e8..2.2e8), "{report}");
    assert!(report["path"]["loss"]["sent"].as_u64().unwrap() > 100, "{report}");
    assert_eq!(report["server"]["allowed_bps"], 200_000_000, "{report}");
    assert_eq!(report["server"]["limit"]["kind"], "ceiling", "{report}");
    assert_eq!(report["path"]["rate"]["is_lower_bound"], true, "{report}");
    assert!(within(&report["upload"]["tcp"][0]["payload_bps"], 2e7..2.6e8), "{report}");
    assert!(report["verdict"]["put_seconds"].as_f64().unwrap() > 300.0, "{report}");
    assert!(fs::read_to_string(run.path("probe.svg")).unwrap().contains("UDP by size of message"));
}

/// Without a ceiling, loopback carries several Gbit/s.
#[test]
fn ceiling_bounds_all_that_is_sent_by_udp() {
    let (_server, _dir, url) = site("--measure");
    let run = longhaul("probe").args([&url, "--json", "--ceiling", "20Mbit"]);
    let report = report(&run.run().ok());
    let ceiling = &report["udp_ceiling"];
    assert!(ceiling["rate_bps"] == 20_000_000 && ceiling["set_by"] == "option", "{report}");
    let rows = report["udp"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{report}");
    for row in rows {
        // The first packet of a train may be late, the others then follow within the 2 ms that are
        // caught up.
        assert!(within(&row["sent_bps"], 5e6..23e6), "{report}");
        assert_eq!(row["is_path_limited"], false, "{report}");
    }
    assert!(ceiling["is_reached"] == true && report["path"]["loss"]["lost"] == 0, "{report}");
    assert!(report["verdict"]["remembered"] == false && !run.path(MEMORY).exists(), "{report}");
    for (args, words) in [
        (&[&url[..], "--ceiling", "1Mbit"][..], "UDP            at most 1.00 Mbit/s (--ceiling)"),
        (&[&url], "UDP            at most 40.0 Gbit/s (the server's ceiling)"),
    ] {
        let shown = probe(args).ok().stdout;
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn clients_share_the_ceiling_and_learn_their_share() {
    let (server, _dir, url) = site("--measure=100Mbit");
    // Another client, at another address of this host, receives continuously.
    let address: SocketAddr = url.split('/').nth(2).unwrap().parse().unwrap();
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::from(([127, 0, 0, 9], 0)).into()).unwrap();
    other.connect(&address.into()).unwrap();
    let mut other = TcpStream::from(other);
    let request = b"GET /.longhaul/measure/stream?bytes=4000000000 HTTP/1.1\r\nHost: h\r\n\r\n";
    other.write_all(request).unwrap();
    let receiver = thread::spawn(move || std::io::copy(&mut other, &mut std::io::sink()));
    let report = report(&probe(&[&url, "--json"]));
    assert_eq!(report["server"]["allowed_bps"], 50_000_000, "{report}");
    assert_eq!(report["server"]["limit"]["kind"], "ceiling", "{report}");
    let shown = probe(&[&url]).stdout;
    assert!(shown.contains("the server allows measurements 50.0 Mbit/s now"), "{shown}");
    drop(server);
    let _ = receiver.join();
}

#[test]
fn repeated_probes_without_memory_store_nothing() {
    let (_server, _dir, url) = site("--measure=50Mbit");
    let run = longhaul("probe").args([&url, "--no-memory"]);
    // Each frees its port.
    for _ in 0..3 {
        let shown = run.run().ok().stdout;
        for words in
            ["get would use", "this is not kept", "measurement endpoint of at most 50.0 Mbit/s", "UDP echo"]
        {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }
    assert!(!run.path(".local").exists());
}

#[test]
fn server_that_ends_in_the_middle_gets_no_verdict() {
    let (server, dir, url) = site("--measure=20Mbit");
    let mut command = longhaul_in(dir.path());
    command.args(["probe", &url, "--json"]).env("LONGHAUL_LOG", "longhaul_engine::probe=debug");
    let mut child = command.spawn().unwrap();
    // The message after the rate is known; then losses are counted.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("bytes are reckoned by")), "the rate was not found");
    drop(server);
    let rest = thread::spawn(move || lines.for_each(drop));
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap();
    assert!(!output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["path"]["loss"].is_null() && report["verdict"]["rate_bps"].is_null(), "{report}");
    assert_eq!(report["verdict"]["advice"], serde_json::json!([]), "{report}");
    assert!(!report["missing"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn upload_alone_is_measured_by_one_connection_and_several() {
    let (_server, _dir, url) = site("--measure");
    let ended = probe(&[&url, "--json", "--upload", "--size", "1GiB"]).ok();
    let report = report(&ended);
    let rows = report["upload"]["tcp"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["streams"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    assert!(rows.iter().all(|row| row["payload_bps"].as_u64().unwrap() > 50_000_000), "{report}");
    assert!(report["tcp"].as_array().unwrap().is_empty() && report["path"]["rate"].is_null(), "{report}");
    assert!(report["verdict"]["put_seconds"].as_f64().unwrap() < 180.0, "{report}");
    assert!(ended.time.as_secs() < 12, "{ended:?}");
}

/// 4 MB/s per connection.
#[test]
fn shaped_connections_are_recognised() {
    let server = Server::slow(4_000_000, &File::new(vec![2; 100_000_000]));
    let report = report(&probe(&[&server.url("/f"), "--json"]));
    assert_eq!(report["server"]["limit"]["kind"], "per-connection", "{report}");
    assert!(within(&report["server"]["limit"]["rate"], 24e6..40e6), "{report}");
}

/// Probes an iperf3 server on an emulated path, after a command on its host.
fn probe_iperf3(path: &str, before: &str, judge: impl Fn(&Value)) {
    if needs_lab_with(&["iperf3"]).is_some() {
        let client = "exec longhaul probe iperf3://$LAB_SERVER:8080 --json --no-memory";
        on_path(path, &format!("{before}; exec iperf3 -s -p 8080 > /dev/null"), 5, client, judge);
    }
}

/// The upload would take half a minute for the bytes that the download left.
#[test]
fn slow_upload_is_found_in_time() {
    let path = "--rate 100Mbit --rtt 5ms --loss 0 --up rate=1Mbit";
    probe_iperf3(path, ":", |report| {
        assert!(within(&report["upload"]["rate"]["rate_bps"], 0.5e6..1.2e6), "{report}");
        assert!(report["verdict"]["seconds"].as_f64().unwrap() > 0.0, "{report}");
        assert!(within(&report["seconds"], 0.0..10.0), "{report}");
    });
}

/// A tenth of the traffic ends within slow start.
#[test]
fn rate_of_a_long_path_is_that_after_slow_start() {
    probe_iperf3("--rate 100Mbit --rtt 100ms --loss 0", ":", |report| {
        for row in [&report["tcp"][0], &report["tcp"][1], &report["upload"]["tcp"][0]] {
            assert!(within(&row["payload_bps"], 60e6..100e6), "{report}");
        }
        assert!(report["path"]["loss"]["sent"].as_u64().unwrap() > 0, "{report}");
        assert!(
            report["server"]["protocol"] == "iperf3" && report["udp_ceiling"]["set_by"] == "tcp",
            "{report}"
        );
        assert_eq!(report["verdict"]["remembered"], false, "{report}");
    });
}

/// iperf3 itself waits for half a minute.
#[test]
fn blocked_udp_is_reported_and_both_directions_are_measured() {
    // Drops received datagrams, like a firewall; replies are unaffected.
    let block = "ip rule add pref 2 lookup local && ip rule add pref 1 ipproto udp iif longhaul0 blackhole && ip rule del pref 0";
    probe_iperf3("--rate 100Mbit --rtt 10ms --loss 0", block, |report| {
        assert!(misses(report, "UDP: blocked on the way, port 8080"), "{report}");
        assert!(report["path"]["loss"].is_null(), "{report}");
        assert_eq!(report["tcp"].as_array().unwrap().len(), 2, "{report}");
        assert_eq!(report["upload"]["tcp"].as_array().unwrap().len(), 1, "{report}");
        assert!(report["verdict"]["seconds"].as_f64().unwrap() > 0.0, "{report}");
        assert!(within(&report["seconds"], 0.0..10.0), "{report}");
    });
}

#[test]
fn sweeps_have_a_row_for_each_message_number_buffer_and_control() {
    let Some(server) = Iperf3::start() else { return };
    let report = report(&probe(&[&server.url(), "--full", "--json", "--ceiling", "100Mbit"]).ok());
    let of = |table: &str, column: &str| -> Vec<u64> {
        report[table].as_array().unwrap().iter().filter_map(|row| row[column].as_u64()).collect()
    };
    assert_eq!((&of("udp", "message")[..2], of("udp", "message").len()), (&[64, 1024][..], 3), "{report}");
    assert_eq!(report["udp_ceiling"]["set_by"], "option", "{report}");
    for (message, sent) in of("udp", "message").into_iter().zip(of("udp", "sent_bps")) {
        // The headers of IPv4 and UDP are sent too.
        let at_ip = sent as f64 * (message + 28) as f64 / message as f64;
        assert!(at_ip < 110e6, "{report}");
    }
    assert_eq!(of("tcp", "buffer"), [64 << 10, 256 << 10, 1 << 20, 2 << 20], "{report}");
    assert_eq!(of("tcp", "streams")[..5], [1, 4, 2, 8, 16], "{report}");
    let rows = report["tcp"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["congestion"] == "reno"), "{report}");
}
