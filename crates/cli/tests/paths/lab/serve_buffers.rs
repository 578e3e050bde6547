//! `get` from `longhaul serve`: one paced connection if the server's send buffer holds the path's BDP, otherwise several.

use std::fs;

use serde_json::Value;

use crate::lab::command::{exec, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

#[test]
fn small_send_buffer_of_serve_makes_get_use_several_streams() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    fs::write(dir.path().join("file"), vec![7; 128 << 20]).unwrap();
    let serve = format!("{PROGRAM} serve {at} --listen $LAB_SERVER:80");
    let get = format!("{PROGRAM} get --no-memory --json -o {at}/copy http://$LAB_SERVER/file");
    let streams = |hosts: &str| {
        let path = ["--rate", "1Gbit", "--rtt", "100ms", "--hosts", hosts];
        let options = [&path[..], &["--server-port", "80", "--server", &serve]].concat();
        let output = exec(&options, &get).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
        fs::remove_file(dir.path().join("copy")).unwrap();
        let done: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        done["streams"].as_u64().unwrap()
    };
    assert!(streams("stock") > 1);
    assert_eq!(streams("tuned"), 1);
}
