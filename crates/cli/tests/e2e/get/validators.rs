//! Combining ranges of several responses, with a strong validator or with --assume-unchanged; and
//! `--if-newer`.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::support::{File, Gate, Nginx, Server, content, get, partial_with, same};

const SIZE: usize = 24 << 20;
const SMALL: usize = 600_000;

#[test]
fn bodies_without_validators_are_never_mixed() {
    for ranges in [true, false] {
        let files = [1, 2].map(|seed| File { etag: None, ranges, ..File::new(content(SIZE, seed)) });
        let (served, answers) = (files.clone(), AtomicUsize::new(0));
        let server = Server::replying(move |request| {
            served[answers.fetch_add(1, Ordering::SeqCst) % 2].response(request)
        });
        let run = get().args(["--streams", "4", "--json", "-o", "f", &server.url("/f")]);
        // The first request of several streams is for a part, and reveals that parts cannot be
        // combined.
        let done = run.fetches(&files[usize::from(ranges)].bytes).done();
        let whole: Vec<_> =
            server.requests().iter().map(|request| request.field("range").is_none()).collect();
        assert_eq!(whole, if ranges { vec![false, true] } else { vec![false] });
        assert_eq!((&done["streams"], &done["resumed"]), (&1.into(), &0.into()), "{done}");
    }
}

#[test]
fn a_break_without_validators_starts_over() {
    for streams in ["1", "4"] {
        let files = [3, 4].map(|seed| File { etag: None, ..File::new(content(SMALL, seed)) });
        let served = files.clone();
        let server = Server::new(move |peer| match peer.number {
            0 => peer.break_off(&served[0], SMALL / 2),
            _ => peer.serve(&served[1]),
        });
        let run = get().args(["--streams", streams, "--json", "-o", "f", &server.url("/f")]);
        let ended = run.fetches(&files[1].bytes);
        // Requests the whole file in the form that this server has answered before: with or without
        // a range.
        let all = format!("bytes=0-{}", SMALL - 1);
        let asks = server.requests();
        let wanted = asks[0].field("range").map(|_| all.as_str());
        assert!(asks[1..].iter().all(|request| request.field("range") == wanted), "{asks:?}");
        assert!(!ended.events("retrying").is_empty(), "{ended:?}");
        assert_eq!(ended.done()["resumed"], 0);
    }
}

/// The first response to a range announces the file's size. A page of another size is not stored as
/// the file.
#[test]
fn a_page_instead_of_a_file_without_validators_is_not_taken() {
    let file = File { etag: None, ..File::new(content(20 << 20, 6)) };
    for (always, code) in [(false, 0), (true, 65)] {
        let server = Server::with(&file, move |peer, served| {
            while let Some(request) = peer.read_request() {
                let is_page = |range| always && range != "bytes=0-16777215";
                if request.field("range").is_none_or(is_page) {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>Please log in</p>");
                    return peer.close();
                }
                let (head, body) = served.answer(&request);
                let _ = peer.send(head) && peer.send(body);
            }
        });
        let run = get().args(["--streams", "4", "-o", "f", &server.url("/f")]);
        if code == 0 {
            run.fetches(&file.bytes);
        } else {
            run.fails_unnamed(code, &["text/html"]);
        }
    }
}

#[test]
fn assumed_unchanged_a_file_without_validators_has_several_streams_and_is_resumed() {
    let file = File { etag: None, ..File::new(content(SIZE, 5)) };
    let (served, several) = (file.clone(), Gate::default());
    let server = Server::new(move |peer| {
        // The first connection waits for another one.
        if peer.number > 0 {
            several.open();
        }
        peer.serve_after(1 << 20, &several, &served);
    });
    get().args(["--streams", "4", "--assume-unchanged", "-o", "f", &server.url("/f")]).fetches(&file.bytes);
    let asks = server.requests();
    assert!(asks.iter().all(|ask| ask.range(SIZE).is_some() && ask.field("if-range").is_none()), "{asks:?}");
    let (run, server) = partial_with(&["--assume-unchanged"], &file);
    server.mend(file.clone());
    assert_eq!(run.args(["--json"]).fetches(&file.bytes).done()["resumed"], SIZE / 3);
}

const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// Creates the header lines of a file modified `age` seconds before it is served.
fn modified(age: u64) -> String {
    format!("Last-Modified: {MODIFIED}\r\nDate: Sun, 06 Nov 1994 08:49:{} GMT\r\n", 37 + age)
}

#[test]
fn weak_validators_are_as_none() {
    for (etag, fields) in [
        (Some("W/\"v1\""), String::new()),
        (None, modified(0)),
        (Some("W/\"v1\""), modified(0)),
        (None, format!("Last-Modified: {MODIFIED}\r\n")),
    ] {
        let file = File { etag, fields, ..File::new(content(SIZE, 7)) };
        let server = Server::of(file.clone());
        let run = get().args(["--streams", "4", "--json", "-o", "f", &server.url("/f")]);
        assert_eq!(run.fetches(&file.bytes).done()["streams"], 1);
        let fields = |name: &str| server.requests()[1].field(name).map(str::to_owned);
        assert_eq!((server.requests().len(), fields("range"), fields("if-range")), (2, None, None));
        // Unresumable data is not kept.
        let cut = Server::closing(&file, SIZE / 3, usize::MAX);
        let run = get().args(["--retries", "0", "-o", "f", &cut.url("/f")]);
        run.fails_without_files(75, &["closed the connection early"]);
    }
}

#[test]
fn strong_date_serves_several_streams_and_resumes() {
    for etag in [None, Some("W/\"v1\"")] {
        let file = File { etag, fields: modified(1), ..File::new(content(SIZE, 8)) };
        let server = Server::slow(20_000_000, &file);
        let run = get().args(["--streams", "4", "--json", "-o", "f", &server.url("/f")]);
        assert!(run.fetches(&file.bytes).done()["streams"].as_u64() > Some(1));
        assert!(server.requests()[1..].iter().all(|request| request.field("if-range") == Some(MODIFIED)));
        let (run, server) = partial_with(&[], &file);
        server.mend(file.clone());
        assert_eq!(run.args(["--json"]).fetches(&file.bytes).done()["resumed"], SIZE / 3);
    }
}

fn set_modified(path: &std::path::Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn only_a_newer_file_takes_the_place_of_the_one_here() {
    let Some(nginx) = Nginx::start() else { return };
    let (old, new) = (content(300_000, 95), content(400_000, 96));
    nginx.file("f", &old);
    let run = get().args(["--if-newer", "--json", &nginx.url("/f")]);
    assert_eq!(run.fetches(&old).done()["resumed"], 0);
    let there = fs::metadata(nginx.path("f")).unwrap().modified().unwrap();
    let here = fs::metadata(run.path("f")).unwrap().modified().unwrap();
    let apart = there.duration_since(here).unwrap();
    assert!(apart < Duration::from_secs(1), "the file has its time on the server: {apart:?} apart");
    // Equal time: not fetched, whatever the content.
    fs::write(run.path("f"), "changed here").unwrap();
    let done = run.fetches(b"changed here").done();
    let found = ["streams", "bytes", "unchanged"].map(|name| &done[name]);
    assert_eq!(found, [&json!(0), &json!(12), &json!(true)]);
    // The server's file becomes newer.
    set_modified(&run.path("f"), here);
    nginx.file("f", &new);
    set_modified(&nginx.path("f"), there + Duration::from_secs(60));
    let done = run.fetches(&new).done();
    assert!(done["streams"].as_u64() > Some(0) && done["unchanged"] == false, "{done}");
    // Also with a name set by the user.
    let run = run.again(["-N", "-o", "g", &nginx.url("/f")]);
    run.run().ok();
    let ended = run.run().ok();
    assert!(ended.stderr.contains("g: not newer on the server"), "{ended:?}");
}

#[test]
fn server_without_conditional_requests_gets_a_head_request_only() {
    let fields = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned();
    let server = Server::of(File { fields, ..File::new(content(40 << 20, 97)) });
    let run = get().args(["--if-newer", &server.url("/f")]);
    run.file("f", "here").fetches(b"here");
    // A URL cannot name a file elsewhere.
    let run = get().args(["--if-newer", "-o", "sub/", &server.url("/..%2Fprecious")]);
    let run = run.file("sub/other", "").file("precious", "here");
    run.run().ok();
    same(run.path("precious"), b"here");
    // Nor a hidden one: it is named as without --if-newer.
    let run = get().args(["--if-newer", &server.url("/.hidden")]).file(".hidden", "here");
    run.run().ok();
    same(run.path(".hidden"), b"here");
    assert!(run.path("_.hidden").exists());
}

#[test]
fn entity_tag_decides_without_last_modified() {
    let server = Server::of(File::new(content(1000, 98)));
    let run = get().args(["--if-newer", "--json", &server.url("/f")]);
    // Nothing is known about the local file.
    let run = run.file("f", "here");
    assert!(run.fetches(&content(1000, 98)).done()["streams"].as_u64() > Some(0));
    assert_eq!(run.run().ok().done()["streams"], 0);
    assert_eq!(server.requests().last().unwrap().field("if-none-match"), Some("\"v1\""));
    server.mend(File { etag: Some("\"v2\""), ..File::new(content(1000, 99)) });
    assert!(run.fetches(&content(1000, 99)).done()["streams"].as_u64() > Some(0));
}

#[test]
fn directory_in_place_of_the_file_is_refused() {
    let server = Server::of(File::new(content(1000, 94)));
    for (output, named) in [(&[][..], "f"), (&["-o", "sub"], "sub/f"), (&["-o", "sub/"], "sub/f")] {
        let run = get().args(output).args(["-N", &server.url("/f")]);
        fs::create_dir_all(run.path(named)).unwrap();
        run.run().fails(73, &[named, "it is a directory"]);
        assert_eq!(fs::read_dir(run.path(named)).unwrap().count(), 0);
    }
}
