//! `put` over several streams, on real kernel TCP: only where this host's send buffer bounds one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{exec, skipped, text};

/// Puts 48 MiB at 100 ms between `hosts`; returns how many streams that took.
fn streams(hosts: &str) -> u64 {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("files")).unwrap();
    let bytes: Vec<u8> = (0..12u32 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(path("f"), &bytes).unwrap();
    fs::write(path("token"), "sesame").unwrap();
    fs::set_permissions(path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let (program, at) = (env!("CARGO_BIN_EXE_longhaul"), dir.path().display());
    let serve = format!("{program} serve {at}/files --writable --token {at}/token --listen 0.0.0.0:8080");
    let path_of_lab = ["--rate", "1Gbit", "--rtt", "100ms", "--hosts", hosts];
    let options = [&path_of_lab[..], &["--far", &serve, "--far-port", "8080"]].concat();
    let put = format!("{program} put --json --token {at}/token {at}/f http://198.18.0.2:8080/");
    let output = exec(&options, &put).output().unwrap();
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    assert!(fs::read(path("files/f")).unwrap() == bytes);
    let last = text(&output.stdout).lines().last().unwrap().to_owned();
    let done: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert!(done["digest"].as_str().unwrap().starts_with("blake3:"), "{done}");
    done["streams"].as_u64().unwrap()
}

#[test]
fn stock_hosts_send_over_several_streams_and_tuned_ones_over_one() {
    if skipped() {
        return;
    }
    assert!(streams("stock") > 1);
    assert_eq!(streams("tuned"), 1);
}
