//! Connecting ahead on a long path: further streams complete their handshakes while the first response is awaited.

use std::fs;

use serde_json::Value;

use crate::lab::command::{exec, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

/// In seconds.
const RTT: f64 = 0.3;
/// In bytes.
const SIZE: usize = 64 << 20;

/// Runs a transfer with `longhaul serve`; returns the times at which its connections were reported.
fn connected(serve: &str, transfer: &str) -> Vec<f64> {
    let options = ["--rate", "1Gbit", "--rtt", "300ms", "--server-port", "80", "--server", serve];
    let output = exec(&options, transfer).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let events = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let connected = events.filter(|event| event["event"] == "connected");
    connected.map(|event| event["at"].as_f64().unwrap()).collect()
}

/// Creates a file to serve; returns its directory, and the command that serves it.
fn served() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), vec![7; SIZE]).unwrap();
    let serve = format!("{PROGRAM} serve {} --pace off --listen $LAB_SERVER:80", dir.path().display());
    (dir, serve)
}

/// Checks that all connections were ready at the first response.
#[track_caller]
fn all_at_once(connected: &[f64]) {
    assert_eq!(connected.len(), 8, "{connected:?}");
    // The first connection is reported at its response; a connection started only then takes another RTT.
    let (first, last) = (connected[0], connected[connected.len() - 1]);
    assert!(last - first < RTT / 2.0, "{connected:?}");
}

#[test]
fn further_streams_are_connected_when_the_first_answer_comes() {
    if skipped() {
        return;
    }
    let (dir, serve) = served();
    let at = dir.path().display();
    let get = format!("{PROGRAM} get --streams 8 --no-memory --json -o {at}/copy http://$LAB_SERVER/file");
    all_at_once(&connected(&serve, &get));
}

#[test]
fn streams_of_a_file_of_known_size_are_connected_when_the_first_answer_comes() {
    if skipped() {
        return;
    }
    let (dir, serve) = served();
    let at = dir.path().display();
    let metalink = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"copy\"><size>{SIZE}</size><url>http://198.18.0.2/file</url>\
         </file></metalink>"
    );
    fs::write(dir.path().join("file.meta4"), metalink).unwrap();
    // Eight streams: one for each 8 MiB.
    let get = format!("{PROGRAM} get --no-memory --json -o {at}/copy {at}/file.meta4");
    all_at_once(&connected(&serve, &get));
}
