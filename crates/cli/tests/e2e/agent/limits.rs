//! Limits of concurrency and rate.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::{File, Home, Server, content};

#[test]
fn concurrency_is_limited_and_priority_decides() {
    let home = Home::new();
    home.set(&json!({ "concurrent": 1 }));
    let file = File::new(content(100_000, 9));
    let gate = Arc::new(Mutex::new(()));
    let (entry, held) = (Arc::clone(&gate), gate.lock().unwrap());
    let server = Server::new(move |peer| {
        drop(entry.lock());
        peer.serve(&file);
    });
    let first = home.add(&server.url("/first"), &[]);
    home.wait_for_state(first, "running");
    let later = home.add(&server.url("/later"), &[]);
    home.add(&server.url("/urgent"), &["--priority", "5"]);
    drop(held);
    home.done(later);
    let mut targets: Vec<_> = server.requests().into_iter().map(|request| request.target).collect();
    targets.dedup();
    assert_eq!(targets, ["/first", "/urgent", "/later"]);
}

#[test]
fn total_limit_holds_for_all_transfers_together_and_can_be_lifted() {
    let home = Home::new();
    // At 8 Mbit/s 2 MB take 2 s.
    home.set(&json!({ "limit_bps": 8_000_000 }));
    let server = Server::of(File::new(content(1_000_000, 10)));
    let began = Instant::now();
    let ids = [home.add(&server.url("/a"), &[]), home.add(&server.url("/b"), &[])];
    ids.iter().for_each(|id| drop(home.done(*id)));
    assert!(began.elapsed() > Duration::from_millis(1500), "{:?}", began.elapsed());
    // At this limit the file takes 400 s.
    home.set(&json!({ "limit_bps": 20_000 }));
    let id = home.add(&server.url("/c"), &[]);
    home.wait_for_state(id, "running");
    home.set(&json!({ "limit_bps": null }));
    home.done(id);
}

#[test]
fn schedule_that_allows_nothing_stops_what_runs_and_a_later_one_lets_it_go_on() {
    let home = Home::new();
    let file = File::new(content(4_000_000, 11));
    let server = Server::slow(1_000_000, &file);
    let id = home.add(&server.url("/f"), &[]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    let all_day = |concurrent: u32| json!({ "schedule": [{ "days": "daily", "from": "00:00", "to": "24:00", "concurrent": concurrent }] });
    home.set(&all_day(0));
    home.wait_for_state(id, "queued");
    server.mend(file);
    home.set(&all_day(1));
    home.done(id);
}

#[test]
fn transfer_for_later_waits_for_its_time() {
    let home = Home::new();
    let server = Server::of(File::new(content(10_000, 12)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let far = home.add(&server.url("/far"), &["--at", &(now + 1_000_000).to_string()]);
    let soon = home.add(&server.url("/soon"), &["--at", &(now + 2).to_string()]);
    assert_eq!(home.transfer(far)["state"], "scheduled");
    home.done(soon);
    assert!(UNIX_EPOCH.elapsed().unwrap().as_secs() >= now + 2);
    assert_eq!(home.transfer(far)["state"], "scheduled");
    home.queue_ok(&["resume", &far.to_string()]);
    home.done(far);
}

#[test]
fn order_priority_and_limit_are_changed_by_commands() {
    let home = Home::new();
    let ids = ["a", "b", "c"].map(|name| home.add(&format!("http://127.0.0.1:9/{name}"), &["--paused"]));
    let [a, b, c] = ids.map(|id| id.to_string());
    let names = || home.list().iter().map(|transfer| transfer["name"].as_str().unwrap()).collect::<String>();
    home.queue_ok(&["move", &c, "--before", &a]);
    assert_eq!(names(), "cab");
    home.queue_ok(&["move", &c]);
    assert_eq!(names(), "abc");
    home.queue_ok(&["set", &b, "--priority", "3", "--limit", "8Mbit"]);
    assert_eq!((&*names(), &home.transfer(ids[1])["limit_bps"]), ("bac", &8_000_000.into()));
    home.queue_ok(&["set", &b, "--limit", "none"]);
    assert!(home.transfer(ids[1])["limit_bps"].is_null());
}
