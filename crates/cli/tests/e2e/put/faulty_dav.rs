//! Servers that identify as Apache's mod_dav_fs but behave differently: the file arrives anyway, or the old one stays.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::scripted_dav::{DavAction, Files, scripted_dav};
use super::streams::connected;
use super::{put_of, requests_of};
use crate::support::{Ended, HttpRequest, Put, Server, content};

const SIZE: usize = (24 << 20) + 4097;

fn put_json(server: &Server, bytes: &[u8]) -> Put {
    put_of(bytes, &["--json", "--streams", "3", "f", &server.url("/f")])
}

/// Checks that the server holds only the complete file.
#[track_caller]
fn only_holds(files: &Files, bytes: &[u8]) {
    let files = files.lock().unwrap();
    assert!(files.len() == 1 && files["/f"] == bytes, "{:?}", files.keys());
}

/// Puts a file to a server whose requests `play` handles; returns the end, and the server.
#[track_caller]
fn file_arrives(
    play: impl Fn(&str, &HttpRequest) -> DavAction + Send + Sync + 'static,
    options: &[&str],
) -> (Ended, Server) {
    let bytes = content(SIZE, 1);
    let (server, files) = scripted_dav(play);
    let ended = put_json(&server, &bytes).args(options).run().ok();
    only_holds(&files, &bytes);
    (ended, server)
}

/// Returns whether the request uploads a range, except the first byte, which tests whether ranges are stored.
fn is_range(method: &str, request: &HttpRequest) -> bool {
    method == "PUT" && request.field("content-range").is_some_and(|range| !range.starts_with("bytes 1-1/"))
}

/// Returns the number of requests that replace the file as a whole.
fn whole_puts(server: &Server) -> usize {
    requests_of(server, "PUT").iter().filter(|request| request.target == "/f").count()
}

#[test]
fn honest_server_gets_ranges_and_a_conditional_move() {
    let (ended, server) = file_arrives(|_, _| DavAction::Honest, &[]);
    assert_eq!(ended.done()["streams"], 3, "{ended:?}");
    let condition = format!("<{}> ([\"3\"])", server.url("/f"));
    let moves = requests_of(&server, "MOVE");
    let conditions: Vec<_> = moves.iter().map(|m| (m.field("overwrite"), m.field("if"))).collect();
    assert_eq!(conditions, [(Some("F"), None), (Some("T"), Some(&*condition))]);
}

#[test]
fn refused_step_leads_to_one_put() {
    // 207 is the response if a part of a tree could not be moved.
    for answer in
        ["207 Some\r\nContent-Length: 0", "403 No\r\nContent-Length: 0", "412 No\r\nContent-Length: 0"]
    {
        one_put("a MOVE that is not done", move |method, _| match method {
            "MOVE" => DavAction::Answer(answer),
            _ => DavAction::Honest,
        });
    }
    let ranges = AtomicUsize::new(0);
    one_put("a refused range after the first", move |method, request| {
        match is_range(method, request) && ranges.fetch_add(1, Ordering::SeqCst) > 0 {
            true => DavAction::Answer("400 No\r\nContent-Length: 0"),
            false => DavAction::Honest,
        }
    });
    let sizes = AtomicUsize::new(0);
    one_put("a wrong size", move |method, request| {
        // The first HEAD is that of the test for range support.
        let is_part = method == "HEAD" && request.target.contains(".longhaul-");
        match is_part && sizes.fetch_add(1, Ordering::SeqCst) > 0 {
            true => DavAction::Answer("200 OK\r\nContent-Length: 25169920"),
            false => DavAction::Honest,
        }
    });
}

fn one_put(what: &str, play: impl Fn(&str, &HttpRequest) -> DavAction + Send + Sync + 'static) {
    let (ended, server) = file_arrives(play, &[]);
    assert!(ended.stderr.contains("sent in one piece"), "{what}: {ended:?}");
    assert_eq!(whole_puts(&server), 1, "{what}");
}

#[test]
fn target_without_an_etag_is_never_replaced_by_a_move() {
    let play = |method: &str, request: &HttpRequest| match (method, request.target.as_str()) {
        // As for a directory.
        ("HEAD", "/f") => DavAction::Answer("200 OK\r\nContent-Length: 25169921"),
        _ => DavAction::Honest,
    };
    let moves = requests_of(&file_arrives(play, &[]).1, "MOVE");
    assert!(moves.iter().all(|request| request.field("overwrite") == Some("F")), "{moves:?}");
}

#[test]
fn connection_that_is_cut_in_a_range_costs_only_that_range() {
    let ranges = AtomicUsize::new(0);
    let play = move |method: &str, request: &HttpRequest| match is_range(method, request)
        && ranges.fetch_add(1, Ordering::SeqCst) == 1
    {
        true => DavAction::Cut,
        false => DavAction::Honest,
    };
    // At this rate each stream connects before the others have sent all.
    let (ended, server) = file_arrives(play, &["--limit", "24MB/s"]);
    assert_eq!((connected(&ended), whole_puts(&server)), (3, 0), "{ended:?}");
}

#[test]
fn changed_source_keeps_the_old_file() {
    let (server, files) = scripted_dav(|_, _| DavAction::Honest);
    let run = put_json(&server, &content(SIZE, 7)).args(["--limit", "12MB/s"]);
    let mut running = run.start();
    running.until("it has begun", || files.lock().unwrap().values().any(|bytes| bytes.len() > 1 << 20));
    fs::write(run.path("f"), content(SIZE, 8)).unwrap();
    running.end().fails(65, &["changed"]);
    only_holds(&files, b"old");
}
