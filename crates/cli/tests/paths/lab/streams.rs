//! Numbers of streams between real kernel TCPs: several only where the send buffer limits one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::lab::{exec_in, needs_lab, objects, ran};
use crate::support::{MEMORY, content};

/// Serves a home's `files`, writable, to a client with a path of 1 Gbit/s and 100 ms; returns the events of its command.
fn transfer(home: &TempDir, hosts: &str, client: &str) -> Vec<Value> {
    let serve =
        "exec longhaul serve files --writable --allow-cleartext --token token --listen $LAB_SERVER:8080";
    fs::write(home.path().join("token"), "sesame").unwrap();
    fs::set_permissions(home.path().join("token"), Permissions::from_mode(0o600)).unwrap();
    let path = ["--rate", "1Gbit", "--rtt", "100ms", "--hosts", hosts];
    let options = [&path[..], &["--server", serve, "--server-port", "8080"]].concat();
    objects(&ran(exec_in(home.path(), &options, client)).ok())
}

/// Returns a home with this content in `name`.
fn home(name: &str, bytes: &[u8]) -> TempDir {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(home.path().join("files")).unwrap();
    fs::write(home.path().join(name), bytes).unwrap();
    home
}

/// Puts 48 MiB between `hosts` with the path memory `known`; returns the events.
fn put(hosts: &str, known: Option<&Value>) -> Vec<Value> {
    let bytes = content(48 << 20, 1);
    let home = home("f", &bytes);
    if let Some(known) = known {
        let memory = home.path().join(MEMORY);
        fs::create_dir_all(memory.parent().unwrap()).unwrap();
        fs::write(memory, known.to_string()).unwrap();
    }
    let put = "longhaul put --json --allow-cleartext --token token f http://$LAB_SERVER:8080/";
    let events = transfer(&home, hosts, put);
    assert!(fs::read(home.path().join("files/f")).unwrap() == bytes);
    let done = events.last().unwrap();
    assert!(done["digest"].as_str().unwrap().starts_with("blake3:"), "{done}");
    events
}

#[test]
fn stock_hosts_send_over_several_streams_and_tuned_ones_over_one() {
    let Some(()) = needs_lab() else { return };
    let get = |hosts: &str| {
        let get = "longhaul get --no-memory --json -o copy http://$LAB_SERVER:8080/file";
        transfer(&home("files/file", &vec![7; 128 << 20]), hosts, get)
    };
    let streams = |events: Vec<Value>| events.last().unwrap()["streams"].as_u64().unwrap();
    let (stock, tuned) = ("stock", "tuned");
    let [got, sent] = [[get(stock), get(tuned)], [put(stock, None), put(tuned, None)]];
    for (what, [stock, tuned]) in [("get", got), ("put", sent)] {
        let (stock, tuned) = (streams(stock), streams(tuned));
        assert!(stock > 1 && tuned == 1, "{what}: {stock} streams, {tuned} between tuned hosts");
    }
}

#[test]
fn put_starts_with_the_number_of_streams_that_the_last_one_found() {
    let Some(()) = needs_lab() else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let first = |upload: bool| {
        let known = json!({ "version": 1, "paths": [{
            "host": "198.18.0.2", "port": 8080, "upload": upload, "rtt_us": 100_000, "rate_bps": 10_000_000,
            "streams": 2, "app_buffer": 0, "window": 0, "at": now,
        }]});
        let events = put("stock", Some(&known));
        // Before the first acknowledgement: one connection for queries, then those of the streams.
        let connected = events.iter().filter(|event| event["event"] == "connected");
        let opened = events.iter().find(|event| event["event"] == "opened").unwrap()["at"].as_f64().unwrap();
        connected.filter(|event| (opened..opened + 0.25).contains(&event["at"].as_f64().unwrap())).count()
    };
    // The result of a fetch does not apply to the reverse path.
    let (remembered, fresh) = (first(true), first(false));
    assert!(remembered <= 3 && fresh > 4, "{remembered}, {fresh}");
}
