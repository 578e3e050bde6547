//! `put` over several streams on real kernel TCP: only if this host's send buffer limits one stream.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::lab::command::{exec, skipped, text};

/// Puts 48 MiB at 100 ms between `hosts`; returns the number of streams.
fn streams(hosts: &str) -> u64 {
    let lines = put(hosts, None);
    lines.last().unwrap()["streams"].as_u64().unwrap()
}

/// Puts 48 MiB at 100 ms between `hosts` with the path memory `known`; returns the program's output, followed by the new path memory.
fn put(hosts: &str, known: Option<Value>) -> Vec<Value> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("files")).unwrap();
    let bytes: Vec<u8> = (0..12u32 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(path("f"), &bytes).unwrap();
    fs::write(path("token"), "sesame").unwrap();
    fs::set_permissions(path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let (program, at) = (env!("CARGO_BIN_EXE_longhaul"), dir.path().display());
    let serve = format!(
        "{program} serve {at}/files --writable --allow-cleartext --token {at}/token --listen 0.0.0.0:8080"
    );
    let path_of_lab = ["--rate", "1Gbit", "--rtt", "100ms", "--hosts", hosts];
    let options = [&path_of_lab[..], &["--server", &serve, "--server-port", "8080"]].concat();
    let state = path("state/longhaul");
    fs::create_dir_all(&state).unwrap();
    if let Some(known) = &known {
        fs::write(state.join("paths.json"), known.to_string()).unwrap();
    }
    let put = format!(
        "env XDG_STATE_HOME={at}/state {program} put --json --allow-cleartext --token {at}/token {at}/f http://198.18.0.2:8080/"
    );
    let output = exec(&options, &put).output().unwrap();
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    assert!(fs::read(path("files/f")).unwrap() == bytes);
    let lines = text(&output.stdout);
    let mut lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done = lines.last().unwrap();
    assert!(done["digest"].as_str().unwrap().starts_with("blake3:"), "{done}");
    if known.is_some() {
        lines.push(serde_json::from_slice(&fs::read(state.join("paths.json")).unwrap()).unwrap());
    }
    lines
}

#[test]
fn stock_hosts_send_over_several_streams_and_tuned_ones_over_one() {
    if skipped() {
        return;
    }
    assert!(streams("stock") > 1);
    assert_eq!(streams("tuned"), 1);
}

#[test]
fn put_starts_with_the_number_of_streams_that_the_last_one_found() {
    if skipped() {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let first = |upload: bool| {
        let known = json!({ "version": 1, "paths": [{
            "host": "198.18.0.2", "port": 8080, "upload": upload, "rtt_us": 100_000, "rate_bps": 10_000_000,
            "streams": 2, "app_buffer": 0, "window": 0, "at": now,
        }]});
        let lines = put("stock", Some(known));
        // Before the first acknowledgement: one connection for queries, then those of the streams.
        let connected = lines.iter().filter(|line| line["event"] == "connected");
        let opened = lines.iter().find(|line| line["event"] == "opened").unwrap()["at"].as_f64().unwrap();
        connected.filter(|line| (opened..opened + 0.25).contains(&line["at"].as_f64().unwrap())).count()
    };
    // The result of a fetch does not apply to the reverse path.
    let (remembered, fresh) = (first(true), first(false));
    assert!(remembered <= 3 && fresh > 4, "{remembered}, {fresh}");
}
