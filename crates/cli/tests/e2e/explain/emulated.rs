//! A transfer over an emulated path with head-room.

use std::fs;

use crate::explain::explained;
use crate::support::lab::{exec_in, last_object, no_lab, objects, ran};

/// The user's limit is a fifth of the path's rate, and the queue holds the whole file.
#[test]
fn transfer_below_the_rate_loses_nothing_and_names_its_limit() {
    const SIZE: u64 = 4_000_000;
    if no_lab() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("served")).unwrap();
    fs::write(home.path().join("served/file"), vec![7; SIZE as usize]).unwrap();
    let path = ["--rate", "100Mbit", "--rtt", "20ms", "--queue", "8MB", "--json", "--server-port", "8080"];
    let serve = "exec longhaul serve served --listen $LAB_SERVER:8080";
    let get = "longhaul get --json --no-memory --limit 20Mbit --record r.jsonl --record-interval 50ms -o got http://$LAB_SERVER:8080/file";
    let ended = ran(exec_in(home.path(), &[&path[..], &["--server", serve]].concat(), get)).ok();
    let done = objects(&ended).into_iter().find(|event| event["event"] == "done").unwrap();
    for (name, expected) in [("bytes", SIZE.into()), ("streams", 1.into()), ("limited_by", "limit".into())] {
        let expected: serde_json::Value = expected;
        assert_eq!(done[name], expected, "{name}: {done}");
    }
    assert!(done["advice"][0].as_str().unwrap().starts_with("limited by "), "{done}");
    let carried = last_object(&ended);
    for direction in ["client_to_server", "server_to_client"] {
        assert_eq!(carried[direction]["dropped_queue"], 0, "{carried}");
    }
    // Headers, and no payload a second time.
    let bytes = carried["server_to_client"]["bytes"].as_u64().unwrap();
    assert!((SIZE..SIZE * 11 / 10).contains(&bytes), "{carried}");
    assert_eq!(explained(home.path(), &["r.jsonl"])[0]["limited_by"], "limit");
}
