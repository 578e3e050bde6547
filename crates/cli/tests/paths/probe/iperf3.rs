//! Probes of iperf3 servers.

use serde_json::Value;

use super::{on_path, within};
use crate::support::lab::needs_lab_with;
use crate::support::{Iperf3, misses, probe, report};

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
