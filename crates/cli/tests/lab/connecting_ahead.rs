//! The further streams of a file on a long path: their handshakes run while the answer to the first request is awaited.

use std::fs;

use serde_json::Value;

use crate::support::{exec, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

/// Seconds. The first connection and its answer take two round trips, and a connection begun after that a third.
const RTT: f64 = 0.3;

#[test]
fn further_streams_are_connected_when_the_first_answer_comes() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    fs::write(dir.path().join("file"), vec![7; 64 << 20]).unwrap();
    let serve = format!("{} serve {at} --pace off --listen $LAB_FAR:80", PROGRAM);
    let options = ["--rate", "1Gbit", "--rtt", "300ms", "--far-port", "80", "--far", &serve];
    let get = format!("{} get --streams 8 --no-memory --json -o {at}/copy http://$LAB_FAR/file", PROGRAM);
    let output = exec(&options, &get).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let events = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let connected: Vec<f64> = events
        .filter(|event| event["event"] == "connected")
        .map(|event| event["at"].as_f64().unwrap())
        .collect();
    assert_eq!(connected.iter().filter(|at| **at < 2.7 * RTT).count(), 8, "{connected:?}");
}
