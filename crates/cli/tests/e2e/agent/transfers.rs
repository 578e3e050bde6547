//! Transfers of the queue: fetching, sending, pausing, failing.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::agent::home::{File, Home, Serve, Server, content, partial_files, same, text};

/// Bytes per second, slow enough to pause a transfer.
const SLOW: usize = 2_000_000;

#[test]
fn file_that_is_added_is_fetched_and_has_a_report() {
    let (home, bytes) = (Home::new(), content(3_000_000, 1));
    let server = Server::of(File::new(bytes.clone()));
    let id = home.add(&server.url("/a%20b.bin?key=hidden"), &["--watch"]);
    let done = home.wait_for_state(id, "done");
    same(home.files().join("a b.bin"), &bytes);
    assert_eq!((&done["bytes"], &done["name"]), (&3_000_000.into(), &"a b.bin".into()));
    assert!(
        done["goodput_bps"].as_u64() > Some(0) && done["ended"].is_i64() && done["error"].is_null(),
        "{done}"
    );
    assert!(!home.queue_ok(&["list", "--json"]).contains("hidden"));
    let (status, report) = home.http("GET", &format!("/api/v1/transfers/{id}/report"), &[], None);
    assert_eq!((status, report.contains("<!doctype html>")), (200, true), "{report:.200}");
    assert!(!fs::read_to_string(home.state(&format!("records/{id}.jsonl"))).unwrap().contains("hidden"));
}

#[test]
fn paused_transfer_keeps_its_part_and_continues() {
    let (home, bytes) = (Home::new(), content(6_000_000, 2));
    let file = File::new(bytes.clone());
    let server = Server::new(move |peer| peer.serve_at(SLOW, &file));
    let id = home.add(&server.url("/f"), &["--streams", "1"]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(500_000));
    home.queue_ok(&["pause", &id.to_string()]);
    let paused =
        home.wait_for(id, |transfer| transfer["state"] == "paused" && transfer["bytes"].as_u64() > Some(0));
    // The transfer stops within a moment of the reply.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!partial_files(&home.files()).is_empty() && !home.files().join("f").exists(), "{paused}");
    home.queue_ok(&["resume", &id.to_string()]);
    home.wait_for_state(id, "done");
    same(home.files().join("f"), &bytes);
    let ranged = server
        .requests()
        .iter()
        .filter(|request| request.field("range").is_some_and(|range| range != "bytes=0-"))
        .count();
    assert!(ranged > 0, "it continued from what was there");
}

#[test]
fn cancelled_transfer_ends_and_can_be_retried() {
    let (home, bytes) = (Home::new(), content(3_000_000, 3));
    let file = File::new(bytes.clone());
    let server = Server::new(move |peer| peer.serve_at(SLOW, &file));
    let id = home.add(&server.url("/f"), &[]).to_string();
    home.queue_ok(&["cancel", &id]);
    let number = id.parse().unwrap();
    home.wait_for_state(number, "cancelled");
    assert_eq!(home.queue(&["resume", &id]).status.code(), Some(65));
    home.queue_ok(&["retry", &id]);
    home.wait_for_state(number, "done");
    same(home.files().join("f"), &bytes);
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
    let dead = "http://127.0.0.1:9/f";
    let id = home.add(dead, &["--mirror", &server.url("/mirrored")]);
    home.wait_for_state(id, "done");
    let metalink = home.path("f.meta4");
    let digest = blake3::hash(&bytes).to_hex();
    let text = format!(
        r#"<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="linked.bin"><size>400000</size>
        <hash type="blake3">{digest}</hash><url>{}</url></file></metalink>"#,
        server.url("/x")
    );
    fs::write(&metalink, text).unwrap();
    home.set(&serde_json::json!({ "directory": home.files() }));
    let added = home.queue_ok(&["add", metalink.to_str().unwrap()]);
    home.wait_for_state(added.split(' ').next().unwrap().parse().unwrap(), "done");
    same(home.files().join("linked.bin"), &bytes);
}

#[test]
fn directories_are_fetched_and_sent() {
    let home = Home::new();
    let (from, to) = (home.path("from"), home.path("to"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::create_dir(&to).unwrap();
    for (name, seed) in [("a", 1), ("sub/b", 2)] {
        fs::write(from.join(name), content(50_000, seed)).unwrap();
    }
    let source = Serve::new(&from, &[]);
    let target = home.files().join("tree");
    let added = home.queue_ok(&["add", "-r", &source.url("/"), "-o", target.to_str().unwrap()]);
    let tree = home.wait_for_state(added.split(' ').next().unwrap().parse().unwrap(), "done");
    assert_eq!((&tree["kind"], &tree["bytes"]), (&"tree".into(), &100_000.into()));
    same(target.join("sub/b"), &content(50_000, 2));

    fs::write(home.path("token"), "sesame").unwrap();
    fs::set_permissions(home.path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let token = home.path("token");
    let sink = Serve::new(&to, &["--writable", "--token", token.to_str().unwrap()]);
    let put = |path: &std::path::Path, url: &str| {
        let args = ["add", "--put", path.to_str().unwrap(), url, "--token", token.to_str().unwrap()];
        home.queue_ok(&args).split(' ').next().unwrap().parse::<i64>().unwrap()
    };
    let (file, directory) = (put(&from.join("a"), &sink.url("/")), put(&from, &sink.url("/all/")));
    home.wait_for_end(file, "done");
    home.wait_for_end(directory, "done");
    same(to.join("a"), &content(50_000, 1));
    same(to.join("all/sub/b"), &content(50_000, 2));
}

#[test]
fn server_that_is_down_is_tried_again_later() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let id = home.add(&format!("http://{address}/f"), &[]);
    let waiting = home.wait_for_state(id, "scheduled");
    assert!(waiting["at"].is_i64() && waiting["error"]["message"].is_string(), "{waiting}");
    let bytes = content(10_000, 6);
    let file = File::new(bytes.clone());
    let _server = Server::on(std::net::TcpListener::bind(address).unwrap(), move |peer| peer.serve(&file));
    home.wait_for_state(id, "done");
    same(home.files().join("f"), &bytes);
}
