//! Transfers of the queue: fetching, sending, pausing, failing, expired links, limits of concurrency and rate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::{File, Home, Server, closed_port, content, partial_files, same, serve, text};

/// Bytes per second, slow enough to pause a transfer.
const SLOW: usize = 1_000_000;

#[test]
fn file_that_is_added_is_fetched_and_has_a_report() {
    let (home, bytes) = (Home::new(), content(3_000_000, 1));
    let server = Server::of(File::new(bytes.clone()));
    let id = home.add(&server.url("/a%20b.bin?key=hidden"), &["--watch"]);
    let done = home.done(id);
    same(home.files().join("a b.bin"), &bytes);
    assert_eq!((&done["bytes"], &done["name"]), (&3_000_000.into(), &"a b.bin".into()));
    assert!(done["goodput_bps"].as_u64() > Some(0) && done["ended"].is_i64(), "{done}");
    assert!(done["error"].is_null(), "{done}");
    assert!(!home.queue_ok(&["list", "--json"]).contains("hidden"));
    let (status, report) = home.http("GET", &format!("/api/v1/transfers/{id}/report"), &[], None);
    assert_eq!((status, report.contains("<!doctype html>")), (200, true), "{report:.200}");
    assert!(!fs::read_to_string(home.state(&format!("records/{id}.jsonl"))).unwrap().contains("hidden"));
}

#[test]
fn paused_transfer_keeps_its_part_and_continues() {
    let (home, file) = (Home::new(), File::new(content(6_000_000, 2)));
    let server = Server::slow(SLOW, &file);
    let id = home.add(&server.url("/f"), &["--streams", "1"]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    home.queue_ok(&["pause", &id.to_string()]);
    let paused =
        home.wait_for(id, |transfer| transfer["state"] == "paused" && transfer["bytes"].as_u64() > Some(0));
    assert!(!partial_files(&home.files()).is_empty() && !home.files().join("f").exists(), "{paused}");
    server.mend(file.clone());
    home.queue_ok(&["resume", &id.to_string()]);
    home.done(id);
    same(home.files().join("f"), &file.bytes);
    let requests = server.requests();
    let ranges: Vec<_> = requests.iter().filter_map(|request| request.field("range")).collect();
    assert!(ranges.iter().any(|range| *range != "bytes=0-"), "it continued from what was there: {ranges:?}");
}

#[test]
fn cancelled_transfer_ends_and_can_be_retried() {
    let (home, file) = (Home::new(), File::new(content(3_000_000, 3)));
    let server = Server::slow(SLOW, &file);
    let number = home.add(&server.url("/f"), &[]);
    let id = number.to_string();
    home.queue_ok(&["cancel", &id]);
    home.wait_for_state(number, "cancelled");
    assert_eq!(home.queue(&["resume", &id]).status.code(), Some(65));
    server.mend(file.clone());
    home.queue_ok(&["retry", &id]);
    home.done(number);
    same(home.files().join("f"), &file.bytes);
    home.queue_ok(&["remove", &id]);
    assert!(home.list().is_empty() && home.files().join("f").exists());
}

#[test]
fn wrong_checksum_fails_and_the_exit_code_says_so() {
    let (home, server) = (Home::new(), Server::of(File::new(content(100_000, 4))));
    let wrong = format!("sha256:{}", "0".repeat(64));
    let files = format!("{}/", home.files().display());
    let output = home.queue(&["add", &server.url("/f"), "-o", &files, "--checksum", &wrong, "--watch"]);
    assert_eq!(output.status.code(), Some(65), "{}", text(&output));
    let failed = &home.list()[0];
    assert_eq!((&failed["state"], &failed["error"]["exit_code"]), (&"failed".into(), &65.into()));
    assert!(failed["error"]["message"].as_str().unwrap().contains("checksum"));
}

#[test]
fn invalid_url_is_refused_and_nothing_is_added() {
    let home = Home::new();
    for wrong in ["nonsense", "example.org/f", "file:///etc/passwd", "http://", "--put"] {
        assert_eq!(home.queue(&["add", wrong]).status.code(), Some(64), "{wrong}");
    }
    assert_eq!(home.queue(&["pause", "7"]).status.code(), Some(66));
    assert!(home.list().is_empty());
}

#[test]
fn mirrors_and_metalinks_are_fetched() {
    let (home, bytes) = (Home::new(), content(400_000, 5));
    let server = Server::of(File::new(bytes.clone()));
    home.done(home.add("http://127.0.0.1:9/f", &["--mirror", &server.url("/mirrored")]));
    let metalink = home.path("f.meta4");
    let digest = blake3::hash(&bytes).to_hex();
    let text = format!(
        r#"<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="linked.bin"><size>400000</size>
        <hash type="blake3">{digest}</hash><url>{}</url></file></metalink>"#,
        server.url("/x")
    );
    fs::write(&metalink, text).unwrap();
    home.set(&serde_json::json!({ "directory": home.files() }));
    home.done(home.added(&["add", metalink.to_str().unwrap()]));
    same(home.files().join("linked.bin"), &bytes);
}

#[test]
fn directories_are_fetched_and_sent() {
    let home = Home::new();
    let (from, to, token) = (home.path("from"), home.path("to"), home.path("token"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::create_dir(&to).unwrap();
    for (name, seed) in [("a", 1), ("sub/b", 2)] {
        fs::write(from.join(name), content(50_000, seed)).unwrap();
    }
    let (_source, url) = serve(&from, &[]);
    let target = home.files().join("tree");
    let added = home.added(&["add", "-r", &format!("{url}/"), "-o", target.to_str().unwrap()]);
    let tree = home.done(added);
    assert_eq!((&tree["kind"], &tree["bytes"]), (&"tree".into(), &100_000.into()));
    same(target.join("sub/b"), &content(50_000, 2));

    fs::write(&token, "sesame").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let (_sink, url) = serve(&to, &["--writable", "--token", token.to_str().unwrap()]);
    for (path, url) in [(from.join("a"), format!("{url}/")), (from, format!("{url}/all/"))] {
        let args = ["add", "--put", path.to_str().unwrap(), &url, "--token", token.to_str().unwrap()];
        home.done(home.added(&args));
    }
    same(to.join("a"), &content(50_000, 1));
    same(to.join("all/sub/b"), &content(50_000, 2));
}

#[test]
fn server_that_is_down_is_tried_again_later() {
    let home = Home::new();
    let address = closed_port();
    let id = home.add(&format!("http://{address}/f"), &[]);
    let waiting = home.wait_for_state(id, "scheduled");
    assert!(waiting["at"].is_i64() && waiting["error"]["message"].is_string(), "{waiting}");
    let file = File::new(content(10_000, 6));
    let served = file.clone();
    let _server = Server::on(std::net::TcpListener::bind(address).unwrap(), move |peer| peer.serve(&served));
    home.done(id);
    same(home.files().join("f"), &file.bytes);
}

#[test]
fn expired_link_waits_for_a_fresh_one_and_continues() {
    let (home, bytes) = (Home::new(), content(4_000_000, 7));
    let file = File::new(bytes.clone());
    let server = Server::slow(1_000_000, &file);
    let id = home.add(&server.url("/f?sig=old"), &["--streams", "1"]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    home.queue_ok(&["pause", &id.to_string()]);
    home.wait_for_state(id, "paused");
    server.change(move |peer| {
        peer.serve_with(|request| match request.target.contains("sig=fresh") {
            true => file.answer(&request),
            false => ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(), &[]),
        });
    });
    home.queue_ok(&["resume", &id.to_string()]);
    let waiting = home.wait_for_state(id, "waiting-link");
    assert!(waiting["error"]["message"].as_str().unwrap().contains("403"), "{waiting}");
    // The fresh link has another name.
    home.queue_ok(&["refresh", &id.to_string(), &server.url("/other?sig=fresh")]);
    let done = home.done(id);
    same(home.files().join("f"), &bytes);
    assert_eq!(std::fs::read_dir(home.files()).unwrap().count(), 1, "{done}");
    let requests = server.requests();
    let mut fresh = requests.iter().filter(|request| request.target.contains("sig=fresh")).peekable();
    assert!(fresh.peek().is_some() && fresh.all(|request| request.field("range").is_some()), "{requests:?}");
}

#[test]
fn link_that_never_worked_fails_and_can_be_replaced() {
    let home = Home::new();
    let missing =
        Server::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let files = format!("{}/", home.files().display());
    let output = home.queue(&["add", &missing.url("/f"), "-o", &files, "--watch"]);
    assert_eq!(output.status.code(), Some(66), "{}", text(&output));
    let id = home.list()[0]["id"].as_i64().unwrap();
    assert_eq!(home.transfer(id)["state"], "failed");
    let bytes = content(10_000, 8);
    let server = Server::of(File::new(bytes.clone()));
    home.queue_ok(&["refresh", &id.to_string(), &server.url("/f")]);
    home.done(id);
    same(home.files().join("f"), &bytes);
}

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
