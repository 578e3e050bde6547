//! Servers that identify as Apache's mod_dav_fs but behave differently: the file arrives anyway, or the old one stays.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::put::streams::connected;
use crate::support::{DavAction, Ended, Files, HttpRequest, Put, content, put, scripted_dav};

const SIZE: usize = (24 << 20) + 4097;

fn put_to(url: &str, bytes: &[u8]) -> Put {
    let run = put().args(["--json", "--streams", "3", "f", url]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

fn streams(ended: &Ended) -> u64 {
    ended.done()["streams"].as_u64().unwrap()
}

/// Checks that the server holds only the complete file.
#[track_caller]
fn only_holds(files: &Files, bytes: &[u8]) {
    let files = files.lock().unwrap();
    assert!(files.len() == 1 && files["/f"] == bytes, "{:?}", files.keys());
}

/// Returns whether the request uploads a range, except the first byte, which tests whether ranges are stored.
fn is_range(method: &str, request: &HttpRequest) -> bool {
    method == "PUT" && request.field("content-range").is_some_and(|range| !range.starts_with("bytes 1-1/"))
}

#[test]
fn honest_server_gets_ranges_and_a_conditional_move() {
    let bytes = content(SIZE, 1);
    let (server, files) = scripted_dav(|_, _| DavAction::Honest);
    let ended = put_to(&server.url("/f"), &bytes).run().ok();
    assert_eq!(streams(&ended), 3, "{ended:?}");
    only_holds(&files, &bytes);
    let moves: Vec<_> =
        server.requests().into_iter().filter(|request| request.head.starts_with("MOVE")).collect();
    assert_eq!(moves.len(), 2);
    assert_eq!((moves[0].field("overwrite"), moves[0].field("if")), (Some("F"), None));
    let condition = format!("<{}> ([\"3\"])", server.url("/f"));
    assert_eq!((moves[1].field("overwrite"), moves[1].field("if")), (Some("T"), Some(&*condition)));
}

#[test]
fn a_move_that_is_not_done_leads_to_one_put() {
    // 207 is the response if a part of a tree could not be moved.
    for answer in
        ["207 Some\r\nContent-Length: 0", "403 No\r\nContent-Length: 0", "412 No\r\nContent-Length: 0"]
    {
        let bytes = content(SIZE, 2);
        let (server, files) = scripted_dav(move |method, _| match method {
            "MOVE" => DavAction::Answer(answer),
            _ => DavAction::Honest,
        });
        let ended = put_to(&server.url("/f"), &bytes).run().ok();
        assert!(ended.stderr.contains("sent in one piece"), "{ended:?}");
        only_holds(&files, &bytes);
        let whole = server.requests().iter().filter(|request| request.head.starts_with("PUT /f ")).count();
        assert_eq!(whole, 1, "{answer}");
    }
}

#[test]
fn a_target_without_an_etag_is_never_replaced_by_a_move() {
    let bytes = content(SIZE, 3);
    let (server, files) = scripted_dav(|method, request| match (method, request.target.as_str()) {
        // As for a directory.
        ("HEAD", "/f") => DavAction::Answer("200 OK\r\nContent-Length: 25169921"),
        _ => DavAction::Honest,
    });
    put_to(&server.url("/f"), &bytes).run().ok();
    only_holds(&files, &bytes);
    let moves: Vec<_> =
        server.requests().into_iter().filter(|request| request.head.starts_with("MOVE")).collect();
    assert!(moves.iter().all(|request| request.field("overwrite") == Some("F")), "{moves:?}");
}

#[test]
fn a_range_that_is_refused_after_the_first_leads_to_one_put() {
    let bytes = content(SIZE, 4);
    let ranges = AtomicUsize::new(0);
    let (server, files) = scripted_dav(move |method, request| {
        match is_range(method, request) && ranges.fetch_add(1, Ordering::SeqCst) > 0 {
            true => DavAction::Answer("400 No\r\nContent-Length: 0"),
            false => DavAction::Honest,
        }
    });
    let ended = put_to(&server.url("/f"), &bytes).run().ok();
    assert!(ended.stderr.contains("sent in one piece"), "{ended:?}");
    only_holds(&files, &bytes);
}

#[test]
fn a_connection_that_is_cut_in_a_range_costs_only_that_range() {
    let bytes = content(SIZE, 5);
    let ranges = AtomicUsize::new(0);
    let (server, files) = scripted_dav(move |method, request| {
        match is_range(method, request) && ranges.fetch_add(1, Ordering::SeqCst) == 1 {
            true => DavAction::Cut,
            false => DavAction::Honest,
        }
    });
    let ended = put_to(&server.url("/f"), &bytes).run().ok();
    // Fewer may be connected at a time: the stream that was cut waits before it reconnects.
    assert_eq!(connected(&ended), 3, "{ended:?}");
    only_holds(&files, &bytes);
    assert!(server.requests().iter().all(|request| !request.head.starts_with("PUT /f ")), "one PUT was sent");
}

#[test]
fn a_wrong_size_leads_to_one_put() {
    let bytes = content(SIZE, 6);
    let sizes = AtomicUsize::new(0);
    let (server, files) = scripted_dav(move |method, request| {
        // The first HEAD is that of the test for range support.
        let is_part = method == "HEAD" && request.target.contains(".longhaul-");
        match is_part && sizes.fetch_add(1, Ordering::SeqCst) > 0 {
            true => DavAction::Answer("200 OK\r\nContent-Length: 25169920"),
            false => DavAction::Honest,
        }
    });
    let ended = put_to(&server.url("/f"), &bytes).run().ok();
    assert!(ended.stderr.contains("sent in one piece"), "{ended:?}");
    only_holds(&files, &bytes);
}

#[test]
fn changed_source_keeps_the_old_file() {
    let (server, files) = scripted_dav(|_, _| DavAction::Honest);
    let run = put_to(&server.url("/f"), &content(SIZE, 7)).args(["--limit", "12MB/s"]);
    let mut running = run.start();
    running.until("it has begun", || files.lock().unwrap().values().any(|bytes| bytes.len() > 1 << 20));
    fs::write(run.path("f"), content(SIZE, 8)).unwrap();
    running.end().fails(65, &["changed"]);
    only_holds(&files, b"old");
}
