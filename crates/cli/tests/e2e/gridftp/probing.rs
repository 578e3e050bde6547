//! `probe` of real servers: throughput of their data connections.

use crate::support::{Globus, Vsftpd, content, longhaul};

/// Long enough for a steady rate.
const SIZE: usize = 64 << 20;

fn probe(url: &str) -> serde_json::Value {
    let ended = longhaul("probe").args(["--json", url]).run().ok();
    serde_json::from_str(&ended.stdout).unwrap()
}

#[track_caller]
fn has_throughput(report: &serde_json::Value) {
    let rows = report["tcp"].as_array().unwrap();
    let streams: Vec<_> = rows.iter().map(|row| row["streams"].as_u64().unwrap()).collect();
    assert_eq!(streams, [1, 4], "{report}");
    assert!(rows.iter().all(|row| row["payload_bps"].as_u64().unwrap() > 0), "{report}");
    assert_eq!(report["server"]["size"].as_u64(), Some(SIZE as u64), "{report}");
}

#[test]
fn throughput_of_one_and_of_several_data_connections_is_measured() {
    let bytes = content(SIZE, 31);
    if let Some(vsftpd) = Vsftpd::start() {
        vsftpd.file("f", &bytes);
        has_throughput(&probe(&vsftpd.url("f")));
        let report = probe(&vsftpd.url("missing"));
        assert!(report["missing"].to_string().contains("TCP throughput: "), "{report}");
    }
    if let Some(globus) = Globus::start() {
        globus.file("f", &bytes);
        has_throughput(&probe(&globus.url("f")));
    }
}
