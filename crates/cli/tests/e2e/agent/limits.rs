//! Limits of concurrency and rate.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::agent::home::{File, Home, Server, content};

#[test]
fn concurrency_is_limited_and_priority_decides() {
    let home = Home::new();
    home.set(&json!({ "concurrent": 1 }));
    let file = File::new(content(1_000_000, 9));
    let server = Server::new(move |peer| peer.serve_at(1_000_000, &file));
    let first = home.add(&server.url("/first"), &[]);
    home.wait_for_state(first, "running");
    let (later, urgent) =
        (home.add(&server.url("/later"), &[]), home.add(&server.url("/urgent"), &["--priority", "5"]));
    let done = home.wait_for_state(later, "done");
    let before = home.transfer(urgent);
    assert_eq!(before["state"], "done");
    assert!(before["started"].as_i64() <= done["started"].as_i64(), "{before} {done}");
    assert!(before["id"].as_i64() > done["id"].as_i64());
}

#[test]
fn total_limit_holds_for_all_transfers_together_and_can_be_lifted() {
    let home = Home::new();
    // At 8 Mbit/s 4 MB take 4 s.
    home.set(&json!({ "limit_bps": 8_000_000 }));
    let server = Server::of(File::new(content(2_000_000, 10)));
    let began = Instant::now();
    let ids = [home.add(&server.url("/a"), &[]), home.add(&server.url("/b"), &[])];
    ids.iter().for_each(|id| drop(home.wait_for_state(*id, "done")));
    assert!(began.elapsed() > Duration::from_secs(3), "{:?}", began.elapsed());
    home.set(&json!({ "limit_bps": 80_000 }));
    let id = home.add(&server.url("/c"), &[]);
    home.wait_for_state(id, "running");
    home.set(&json!({ "limit_bps": null }));
    // At the old limit the rest would take 200 s.
    home.wait_for_state(id, "done");
}

#[test]
fn schedule_that_allows_nothing_stops_what_runs_and_a_later_one_lets_it_go_on() {
    let home = Home::new();
    let file = File::new(content(4_000_000, 11));
    let server = Server::new(move |peer| peer.serve_at(2_000_000, &file));
    let id = home.add(&server.url("/f"), &[]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    let all_day = |concurrent: u32| json!({ "schedule": [{ "days": "daily", "from": "00:00", "to": "24:00", "concurrent": concurrent }] });
    home.set(&all_day(0));
    home.wait_for_state(id, "queued");
    home.set(&all_day(1));
    home.wait_for_state(id, "done");
}

#[test]
fn transfer_for_later_waits_for_its_time() {
    let home = Home::new();
    let server = Server::of(File::new(content(10_000, 12)));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let far = home.add(&server.url("/far"), &["--at", &(now + 1_000_000).to_string()]);
    let soon = home.add(&server.url("/soon"), &["--at", &(now + 2).to_string()]);
    assert_eq!(home.transfer(far)["state"], "scheduled");
    home.wait_for_state(soon, "done");
    assert_eq!(home.transfer(far)["state"], "scheduled");
    home.queue_ok(&["resume", &far.to_string()]);
    home.wait_for_state(far, "done");
}

#[test]
fn order_priority_and_limit_are_changed_by_commands() {
    let home = Home::new();
    let ids: Vec<_> =
        ["a", "b", "c"].map(|name| home.add(&format!("http://127.0.0.1:9/{name}"), &["--paused"])).into();
    let names = || {
        home.list().iter().map(|transfer| transfer["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    home.queue_ok(&["move", &ids[2].to_string(), "--before", &ids[0].to_string()]);
    assert_eq!(names(), ["c", "a", "b"]);
    home.queue_ok(&["move", &ids[2].to_string()]);
    assert_eq!(names(), ["a", "b", "c"]);
    home.queue_ok(&["set", &ids[1].to_string(), "--priority", "3", "--limit", "8Mbit"]);
    assert_eq!((names()[0].as_str(), &home.transfer(ids[1])["limit_bps"]), ("b", &8_000_000.into()));
    home.queue_ok(&["set", &ids[1].to_string(), "--limit", "none"]);
    assert!(home.transfer(ids[1])["limit_bps"].is_null());
}
