//! Transfers of the queue: fetching, sending, pausing, failing, expired links, limits of
//! concurrency and rate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::lab::wait_until;
use crate::support::{File, Home, Server, content, partial_files, reserved_port, same, serve, text};

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
    let record = home.state(&format!("records/{id}.jsonl"));
    assert!(!fs::read_to_string(&record).unwrap().contains("hidden"));
    for path in [record, home.state("queue.db"), home.state("queue.db-wal")] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
}

#[test]
fn new_file_replaces_an_existing_one_only_where_the_request_says_so() {
    let (home, bytes) = (Home::new(), content(300_000, 15));
    let server = Server::of(File::new(bytes.clone()));
    let (url, files) = (server.url("/set.tar"), home.files());
    let (named, directory) = (files.join("set.tar"), format!("{}/", files.display()));
    let output = named.to_str().unwrap();
    for (output, if_exists, name) in [
        (&*directory, &[][..], "set (1).tar"),
        (output, &["--if-exists", "rename"], "set (2).tar"),
        (&directory, &["--if-exists", "replace"], "set.tar"),
        (output, &[], "set.tar"),
        (output, &["--if-exists", "fail"], ""),
        (&directory, &["--if-exists", "fail"], ""),
    ] {
        fs::write(&named, "precious").unwrap();
        let id = home.added(&[&["add", &url, "-o", output], if_exists].concat());
        if name.is_empty() {
            let error = &home.wait_for_state(id, "failed")["error"];
            let message = error["message"].as_str().unwrap();
            let is_told = message.contains("--if-exists") && !message.contains("-N");
            assert!(is_told && error["file_exists"] == true, "{error}");
        } else {
            assert_eq!(home.done(id)["path"], files.join(name).to_str().unwrap());
            same(files.join(name), &bytes);
        }
        assert_eq!(fs::read(&named).unwrap() == b"precious", name != "set.tar", "{output} {if_exists:?}");
    }
    assert_eq!(fs::read_dir(&files).unwrap().count(), 3, "no partial file is left");
}

#[test]
fn transfers_of_one_name_keep_apart_while_one_is_paused() {
    let home = Home::new();
    let [one, two, three] = [16, 17, 18].map(|seed| File::new(content(3_000_000, seed)));
    let (server, gate) = Server::held(&one, 1_000_000);
    let paused = home.add(&server.url("/f"), &["--streams", "1"]);
    home.wait_for(paused, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    home.queue_ok(&["pause", &paused.to_string()]);
    wait_until("its journal is written", || partial_files(&home.files()).len() == 2);
    gate.open();
    let other = Server::of(two.clone());
    let (is_old, changed) =
        (Arc::new(AtomicBool::new(false)), File { etag: Some("\"v2\""), ..three.clone() });
    let (old, now) = (one.clone(), Arc::clone(&is_old));
    server.change(move |peer| {
        peer.serve_with(|request| if now.load(Relaxed) { &old } else { &changed }.answer(&request));
    });
    for (url, name, file) in [(other.url("/f"), "f (1)", &two), (server.url("/f"), "f (2)", &three)] {
        assert_eq!(home.done(home.add(&url, &[]))["name"], name);
        same(home.files().join(name), &file.bytes);
    }
    is_old.store(true, Relaxed);
    home.queue_ok(&["resume", &paused.to_string()]);
    home.done(paused);
    same(home.files().join("f"), &one.bytes);
}

#[test]
fn cancelled_transfer_ends_and_can_be_retried() {
    let (home, file) = (Home::new(), File::new(content(3_000_000, 3)));
    let server = Server::slow(SLOW, &file);
    let number = home.add(&server.url("/f"), &[]);
    let id = number.to_string();
    home.wait_for(number, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    home.queue_ok(&["cancel", &id]);
    home.wait_for_state(number, "cancelled");
    assert_eq!(home.queue(&["resume", &id]).status.code(), Some(65));
    server.mend(file.clone());
    home.queue_ok(&["retry", &id]);
    home.done(number);
    same(home.files().join("f"), &file.bytes);
    home.queue_ok(&["remove", &id]);
    assert!(home.list().is_empty() && home.files().join("f").exists());
    let slow = Server::slow(SLOW, &file);
    for (options, left) in [(&["remove"][..], 2), (&["remove", "--files"], 0)] {
        let id = home.add(&slow.url("/again"), &["--streams", "1"]);
        home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
        home.queue_ok(&["cancel", &id.to_string()]);
        home.queue_ok(&[options, &[&id.to_string()]].concat());
        assert_eq!(partial_files(&home.files()).len(), left);
    }
}

#[test]
fn invalid_url_is_refused_and_nothing_is_added() {
    let home = Home::new();
    for wrong in ["nonsense", "example.org/f", "file:///etc/passwd", "http://", "--put"] {
        assert_eq!(home.queue(&["add", wrong]).status.code(), Some(64), "{wrong}");
    }
    let wrong = home.queue(&["add", "http://127.0.0.1:9/f", "--priority", "10000000"]);
    assert!(wrong.status.code() == Some(64) && !text(&wrong).contains("openapi"), "{}", text(&wrong));
    assert_eq!(home.queue(&["pause", "7"]).status.code(), Some(66));
    assert!(home.list().is_empty());
}

#[test]
fn mirrors_and_metalinks_are_fetched() {
    let (home, bytes) = (Home::without_agent(), content(400_000, 5));
    fs::create_dir(home.path("config")).unwrap();
    fs::write(home.path("config/user-dirs.dirs"), "XDG_DOWNLOAD_DIR=\"$HOME/files\"").unwrap();
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
    let (_reserved, address) = reserved_port();
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
fn paused_transfer_keeps_its_part_and_continues_with_a_fresh_link_where_its_own_has_expired() {
    let (home, bytes) = (Home::new(), content(4_000_000, 7));
    let file = File::new(bytes.clone());
    let server = Server::slow(SLOW, &file);
    let id = home.add(&server.url("/f?sig=old"), &["--streams", "1"]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    home.queue_ok(&["pause", &id.to_string()]);
    let paused = home.wait_for_state(id, "paused");
    assert!(!home.files().join("f").exists(), "{paused}");
    let (watched, word) = (home.queue(&["watch", &id.to_string()]), "queue resume");
    assert!(watched.status.code() == Some(75) && text(&watched).contains(word), "{}", text(&watched));
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
    let continues = |range: &str| range != "bytes=0-";
    assert!(
        fresh.peek().is_some() && fresh.all(|one| one.field("range").is_some_and(continues)),
        "{requests:?}"
    );
}

#[test]
fn failures_are_final_and_a_link_that_never_worked_can_be_replaced() {
    let home = Home::new();
    let files = format!("{}/", home.files().display());
    let put = home.path("to-put");
    fs::write(&put, "to put").unwrap();
    let output = home.queue(&[
        "add",
        &Server::of(File::new(content(100_000, 4))).url("/f"),
        "--checksum",
        &format!("sha256:{}", "0".repeat(64)),
        "--watch",
    ]);
    assert!(output.status.code() == Some(65) && text(&output).contains("checksum"), "{}", text(&output));
    for (status, code) in [("405 No", 69), ("403 No", 77), ("404 Not Found", 66)] {
        let server =
            Server::answering(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
        let url = server.url("/f");
        let args = match code {
            69 => ["add", "--watch", "--put", put.to_str().unwrap(), &url],
            _ => ["add", "--watch", &url, "-o", &files],
        };
        let output = home.queue(&args);
        assert_eq!(output.status.code(), Some(code), "{status}: {}", text(&output));
    }
    assert!(home.list().iter().all(|transfer| transfer["state"] == "failed"));
    let id = home.list().iter().filter_map(|transfer| transfer["id"].as_i64()).max().unwrap();
    let bytes = content(10_000, 8);
    let server = Server::of(File::new(bytes.clone()));
    home.queue_ok(&["refresh", &id.to_string(), &server.url("/f")]);
    home.done(id);
    same(home.files().join("f"), &bytes);
}

#[test]
fn concurrency_is_limited_and_the_order_decides() {
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
    let urgent = home.add(&server.url("/urgent"), &["--limit", "8Mbit"]).to_string();
    home.queue_ok(&["set", &urgent, "--limit", "none"]);
    home.queue_ok(&["move", &urgent, "--before", &later.to_string()]);
    let top = home.add(&server.url("/top"), &[]).to_string();
    home.queue_ok(&["set", &top, "--priority", "1"]);
    drop(held);
    home.done(later);
    let mut targets: Vec<_> = server.requests().into_iter().map(|request| request.target).collect();
    targets.dedup();
    assert_eq!(targets, ["/first", "/top", "/urgent", "/later"]);
}

#[test]
fn changed_limits_apply_to_what_runs() {
    let home = Home::new();
    let file = File::new(content(4_000_000, 11));
    let server = Server::slow(SLOW, &file);
    let id = home.add(&server.url("/f"), &[]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    let all_day = |limits: Value| {
        let mut entry = json!({ "days": "daily", "from": "00:00", "to": "24:00" });
        entry.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        home.set(&json!({ "schedule": [entry] }));
    };
    all_day(json!({ "concurrent": 0 }));
    home.wait_for_state(id, "queued");
    server.mend(file);
    // At this limit the rest takes over 1,000 s.
    all_day(json!({ "limit_bps": 20_000 }));
    home.wait_for_state(id, "running");
    home.set(&json!({ "schedule": [], "limit_bps": 20_000 }));
    home.set(&json!({ "limit_bps": null }));
    home.done(id);
    // The limit is that of all together: 4 MB at 2 MB/s.
    home.set(&json!({ "limit_bps": 16_000_000 }));
    server.mend(File::new(content(2_000_000, 12)));
    let began = Instant::now();
    for id in [1, 2].map(|_| home.add(&server.url("/f"), &[])) {
        home.done(id);
    }
    assert!(began.elapsed() > Duration::from_millis(1600), "{:?}", began.elapsed());
}
