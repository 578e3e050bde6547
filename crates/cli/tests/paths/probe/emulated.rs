//! Probes of emulated paths find the emulated values. `scripts/probe-accuracy.sh` covers ten paths.

use std::fs;

use super::{MEASURE, PROBE, SERVE, on_path, within};
use crate::support::lab::{needs_lab_with, nginx};
use crate::support::misses;

#[test]
fn rate_rtt_and_queue_are_found() {
    let on_ipv6 = "exec longhaul serve . --listen [::]:8080 --measure";
    let to_ipv6 = "exec longhaul probe http://server:8080/f --json";
    for (path, server, client, rate, rtt, queue) in [
        ("--rate 20Mbit --rtt 20ms --queue 100kB --loss 0", MEASURE, PROBE, 20e6, 0.02, 1e5),
        ("--rate 100Mbit --rtt 100ms --queue 400kB --loss 0.01", MEASURE, PROBE, 1e8, 0.1, 4e5),
        // Packets of IPv6 are counted with their longer header.
        ("--rate 20Mbit --rtt 20ms --queue 100kB --loss 0", on_ipv6, to_ipv6, 20e6, 0.02, 1e5),
    ] {
        if client == to_ipv6
            && let Err(error) = std::net::TcpListener::bind("[::]:0")
        {
            println!("skipped: this machine has no IPv6: {error}");
            continue;
        }
        on_path(path, server, 4 << 20, client, |report| {
            let is_lossy = path.ends_with("0.01");
            let mut found = vec![
                ("rate", &report["path"]["rate"]["rate_bps"], rate),
                ("RTT", &report["rtt"][0]["min"], rtt),
                ("queue", &report["path"]["queue"]["bytes"], queue),
            ];
            if !is_lossy {
                found.push(("upload", &report["upload"]["rate"]["rate_bps"], rate));
            }
            for (what, found, truth) in found {
                assert!(within(found, 0.75 * truth..1.25 * truth), "{what}: {found}, not {truth}: {report}");
            }
            assert_eq!(report["path"]["mtu"], 1500, "{report}");
            // A tenth of ten seconds at the rate, and a margin for a busy machine.
            assert!(within(&report["bytes"], 0.0..rate / 8.0 * 1.3), "{report}");
            assert!(within(&report["seconds"], 0.0..15.0), "{report}");
            if is_lossy {
                assert!(within(&report["path"]["loss"]["share"], 0.006..0.015), "{report}");
                assert!(report["verdict"]["advice"].to_string().contains("bbr"), "{report}");
            }
            if client == to_ipv6 {
                assert!(report["peer"].as_str().unwrap().starts_with('['), "{report}");
                assert!(within(&report["path"]["rate"]["rate_bps"], 19e6..21e6), "{report}");
            }
        });
    }
}

#[test]
fn path_is_remembered_for_get() {
    let place = tempfile::tempdir().unwrap();
    let capture = place.path().join("client.pcap");
    let path = format!("--rate 50Mbit --rtt 10ms --queue 100kB --loss 0 --pcap {}", capture.display());
    let client = "longhaul probe http://$LAB_SERVER:8080/f > shown && grep -q 'get will use' shown && \
        cp .local/state/longhaul/paths.json known && \
        longhaul get http://$LAB_SERVER:8080/f -o got > /dev/null && cat known";
    on_path(&path, MEASURE, 4 << 20, client, |known| {
        let [path] = &known["paths"].as_array().unwrap()[..] else { panic!("{known}") };
        assert_eq!(path["port"], 8080, "{known}");
        // The request of `get` names the rate that the probe has found.
        let packets = fs::read(&capture).unwrap();
        let asked = format!("auto;held={};rtt=", path["rate_bps"]);
        assert!(packets.windows(asked.len()).any(|bytes| bytes == asked.as_bytes()), "{asked}: {known}");
    });
}

#[test]
fn limit_of_the_server_is_named() {
    // 40 Mbit/s at 50 ms have 250 kB in flight: a stock send buffer holds ten times as much, and
    // the advice must not name it alone.
    let (path, shaped) = ("--rate 200Mbit --rtt 50ms --queue 4MB --loss 0", format!("{SERVE} --pace 40Mbit"));
    on_path(path, &shaped, 100 << 20, PROBE, |report| {
        let limit = &report["server"]["limit"];
        assert_eq!(limit["kind"], "send-buffer-or-rate", "{report}");
        assert!(within(&limit["rate"], 30e6..45e6), "{report}");
        let advice = report["verdict"]["advice"].to_string();
        assert!(advice.contains("limit_rate") && advice.contains("tcp_wmem"), "{report}");
    });
    let small = format!("sysctl -qw net.ipv4.tcp_wmem='4096 16384 196608'; {MEASURE}");
    let path = "--rate 150Mbit --rtt 50ms --queue 4MB --loss 0";
    on_path(path, &small, 5, PROBE, |report| {
        assert_eq!(report["server"]["tcp_wmem_max"], 196_608, "{report}");
        assert_eq!(report["server"]["limit"]["kind"], "send-buffer", "{report}");
        assert!(report["verdict"]["advice"].to_string().contains("tcp_wmem"), "{report}");
    });
}

/// A probe's share of the endpoint's ceiling is not the path's rate, for any number of probes at
/// one address.
#[test]
fn probes_at_once_find_the_ceiling_and_not_the_path() {
    let path = "--rate 200Mbit --rtt 30ms --queue 750kB --loss 0";
    let client = "for i in 1 2 3; do longhaul probe http://$LAB_SERVER:8080/f --json > $i.json & done; wait; \
        echo \"[$(cat 1.json),$(cat 2.json),$(cat 3.json),$(ls .local/state/longhaul 2> /dev/null | wc -l)]\"";
    on_path(path, &format!("{MEASURE}=50Mbit"), 4 << 20, client, |all| {
        for report in &all.as_array().unwrap()[..3] {
            assert_eq!(report["server"]["limit"]["kind"], "ceiling", "{report}");
            assert_eq!(report["path"]["rate"]["is_lower_bound"], true, "{report}");
            let allowed = report["server"]["allowed_bps"].as_u64().unwrap();
            assert!((16_000_000..=25_000_000).contains(&allowed), "{report}");
            assert!(within(&report["path"]["rate"]["rate_bps"], 12e6..70e6), "{report}");
        }
        assert_eq!(all[3], 0, "paths of a ceiling are remembered");
    });
}

/// A server without the measurement endpoint: TCP alone shows the rate, with a tenth of the path's
/// traffic in ten seconds.
#[test]
fn path_to_another_server_is_found_with_as_little_traffic() {
    let path = "--rate 100Mbit --rtt 100ms --queue 1250kB --loss 0";
    on_path(path, &format!("{SERVE} --pace off"), 100 << 20, PROBE, |report| {
        assert!(within(&report["path"]["rate"]["rate_bps"], 75e6..125e6), "{report}");
        // One connection, four connections, and the data in flight when they have sufficed.
        assert!(within(&report["bytes"], 0.0..100e6 / 8.0 * 1.5), "{report}");
        assert_eq!(report["tcp"].as_array().unwrap().len(), 2, "{report}");
    });
}

/// Parameters that a client can set alone, with a server unaware of probes: connections, and the
/// receive buffer, which limits one connection.
#[test]
fn sweep_over_nginx_shows_the_buffer_that_the_path_needs() {
    let Some(()) = needs_lab_with(&["nginx"]) else { return };
    let server = nginx("root", "access_log off; sendfile on; server { listen 8080; root .; }");
    // A queue that slow start does not overflow: losses would lower some rows.
    let path = "--rate 50Mbit --rtt 40ms --queue 2000kB --loss 0";
    on_path(path, &server, 64 << 20, &format!("{PROBE} --full"), |report| {
        assert!(report["server"]["software"].as_str().unwrap().starts_with("nginx"), "{report}");
        assert_eq!(report["server"]["ranges"], true, "{report}");
        assert!(misses(report, "UDP and the path's queue and loss"), "{report}");
        let rows = report["tcp"].as_array().unwrap();
        let plain = rows.iter().filter(|row| row["buffer"].is_null());
        let streams: Vec<_> = plain.map(|row| row["streams"].as_u64().unwrap()).collect();
        assert_eq!(streams, [1, 2, 4, 8, 16], "{report}");
        // 64 KiB per 40 ms are 13 Mbit/s; the path's BDP is 250 kB.
        for (size, bounds) in [
            (64 << 10, 6e6..20e6),
            (1 << 20, 35e6..60e6),
            (2 << 20, 35e6..60e6),
            (8 << 20, 35e6..60e6),
            (64 << 20, 35e6..60e6),
        ] {
            let row = rows.iter().find(|row| row["buffer"] == size);
            assert!(row.is_some_and(|row| within(&row["payload_bps"], bounds)), "{size}: {report}");
        }
    });
}
