//! Uploads that break off: what can be resumed is kept, what cannot is gone, and nothing is ever
//! half a file.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use longhaul_core::proto::http::UploadId;
use longhaul_server::ServerOutcome;
use socket2::SockRef;

use crate::metrics::{value, with_metrics};
use crate::site::{Site, noise, wait_for};
use crate::uploads::{
    ID, Talk, content, expect, head, names, offset, patch, range, resource, status, writable, writable_with,
};

/// Begins an upload; returns once it is in progress.
fn begin(site: &Site, request: &str) -> Talk {
    let mut talk = Talk::to(site);
    assert_eq!(talk.ask(&expect(request), b"").status, 100);
    talk
}

/// A connection without data for three seconds counts as lost once its client asks how far it has
/// come.
#[test]
fn resuming_client_supersedes_its_silent_connection() {
    let (site, url) = (writable(), resource("f", ID));
    let mut dead = begin(&site, &patch(&url, 0, 10, 10, true));
    dead.send("", b"12345");
    let rest = patch(&url, 5, 5, 10, true);
    assert_eq!(status(&site, &rest, b"67890"), 423, "the first may be alive");
    // An upload by another ID does not supersede it.
    let other = resource("f", UploadId::new([1; 16]));
    let silence = Instant::now();
    wait_for(|| {
        assert_eq!(status(&site, &patch(&other, 0, 5, 5, true), b"67890"), 423);
        silence.elapsed() > Duration::from_secs(3)
    });
    wait_for(|| offset(&site, &url) == "5" && dead.is_answered());
    assert_eq!(dead.answer().status, 503);
    assert_eq!(status(&site, &rest, b"67890"), 201);
    assert_eq!(content(&site, "f"), b"1234567890");
}

#[test]
fn superseded_connection_frees_its_upload_slot() {
    let (site, url) = (writable_with(|config| config.limits.uploads.per_disk = 1), resource("f", ID));
    let mut dead = begin(&site, &patch(&url, 0, 10, 10, true));
    dead.send("", b"12345");
    // The dead connection has the only place; the answer says how far it came.
    let ask = || {
        let answer = Talk::to(&site).ask(&patch(&url, 0, 10, 10, true), b"");
        (answer.status, answer.header("upload-offset").map(str::to_owned))
    };
    wait_for(|| ask() == (409, Some("5".to_owned())));
    assert_eq!(status(&site, &patch(&url, 5, 5, 10, true), b"67890"), 201);
    assert_eq!(content(&site, "f"), b"1234567890");
}

#[test]
fn bodies_that_are_not_what_they_say() {
    let (site, url) = (writable(), resource("f", ID));
    let chunked = head("PUT", "/g", &["Transfer-Encoding: chunked"]);
    let whole = head("PUT", "/g", &["Content-Length: 100"]);
    for (request, body) in [
        (&whole, "short"),
        (&chunked, "5\r\nshort\r\n"),
        (&chunked, "5\r\nshort\r\n0\r\n"),
        (&chunked, "many\r\n"),
        (&chunked, "ffffffffffffffffff\r\n"),
        (&patch(&url, 0, 100, 100, true), "short"),
    ] {
        let mut talk = Talk::to(&site);
        talk.send(request, body.as_bytes());
        talk.0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(talk.answer().status, 400, "{request}{body}");
    }
    // Of a whole file nothing is kept, of an upload what came.
    assert_eq!(names(&site), ["f.longhaul-journal", "f.longhaul-part"]);
    assert_eq!(offset(&site, &url), "5");
    // Longer than was announced: the rest is the next request, and none.
    let mut talk = Talk::to(&site);
    assert_eq!(talk.ask(&head("PUT", "/h", &["Content-Length: 5"]), b"hello and more\r\n\r\n").status, 201);
    assert_eq!((talk.answer().status, content(&site, "h")), (400, b"hello".to_vec()));
    // Chunks that go on past the size of the file.
    let long =
        patch(&resource("i", ID), 0, 0, 5, true).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    assert_eq!(status(&site, &long, b"8\r\ntoo long\r\n0\r\n\r\n"), 400);
    assert!(!site.dir.path().join("i").exists());
}

/// A byte now and then is no progress where it is too little, or belongs to the framing.
#[test]
fn body_that_does_not_come_is_not_waited_for() {
    let site = writable_with(|config| config.limits.timeouts.stall = Duration::from_millis(400));
    let whole = head("PUT", "/f", &["Content-Length: 1000"]);
    let chunked = head("PUT", "/f", &["Transfer-Encoding: chunked"]);
    for (request, start, byte, status) in [
        (&whole, "", None, 408),
        (&whole, "a few", None, 408),
        (&whole, "", Some(b"x"), 408),
        (&chunked, "5;", Some(b"x"), 408),
        (&chunked, "5\r\nhello\r\n0\r\nA: ", Some(b"b"), 408),
        (&chunked, "0000000000000000000000000000000000000000", None, 400),
    ] {
        let mut talk = Talk::to(&site);
        talk.send(request, start.as_bytes());
        let mut slow = talk.0.try_clone().unwrap();
        std::thread::spawn(move || {
            use std::io::Write;
            while byte.is_some_and(|byte| slow.write_all(byte).is_ok()) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(talk.answer().status, status, "{request}{start}");
        wait_for(|| names(&site).is_empty());
    }
}

#[test]
fn ending_server_keeps_what_has_come() {
    let site = writable_with(|config| {
        with_metrics(config);
        config.limits.timeouts.grace = Duration::from_millis(300);
    });
    let (file, url) = (noise(5_000_000), resource("f", ID));
    let mut part = begin(&site, &patch(&url, 0, file.len(), file.len(), true));
    part.send("", &file[..3_000_000]);
    let mut whole = begin(&site, &head("PUT", "/g", &["Content-Length: 10"]));
    whole.send("", b"12345");
    wait_for(|| value(&site, "longhaul_received_bytes_total") == 3_000_005.0);
    let dir = site.dir.path().to_owned();
    site.stopper.finish();
    let moved = tempfile::tempdir().unwrap();
    let journal = || std::fs::read_to_string(dir.join("f.longhaul-journal"));
    wait_for(|| journal().is_ok_and(|text| text.contains("3000000")));
    // Of the whole file nothing is kept.
    wait_for(|| !dir.join("g.longhaul-part").exists());
    for name in ["f.longhaul-part", "f.longhaul-journal"] {
        std::fs::copy(dir.join(name), moved.path().join(name)).unwrap();
    }
    assert_eq!(site.ended(), ServerOutcome { cut: 2 });
    let again = writable_with(|config| config.files.root = moved.path().to_owned());
    assert_eq!(offset(&again, &url), "3000000");
    let rest = patch(&url, 3_000_000, 2_000_000, file.len(), true);
    assert_eq!(status(&again, &rest, &file[3_000_000..]), 201);
    assert!(std::fs::read(moved.path().join("f")).unwrap() == file);
}

#[test]
fn finishing_server_completes_an_upload_in_progress_and_refuses_to_begin_another() {
    let site = writable_with(|config| config.limits.timeouts.grace = Duration::from_secs(100));
    let mut running = begin(&site, &head("PUT", "/f", &["Content-Length: 10"]));
    running.send("", b"12345");
    site.stopper.finish();
    // Connections are accepted while an upload is in progress.
    let url = resource("g", ID);
    for new in [patch(&url, 0, 10, 10, true), range(&url, 4..9, 9)] {
        let answer = Talk::to(&site).ask(&new, b"");
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{answer:?}");
    }
    assert_eq!(names(&site), ["f.longhaul-part"]);
    assert_eq!(running.ask("", b"67890").status, 201);
    assert_eq!(content(&site, "f"), b"1234567890");
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
}

#[test]
fn connection_reset_before_the_body_leaves_no_file() {
    let site = writable_with(with_metrics);
    for (n, line) in ["Expect: 100-continue", "X: y"].into_iter().cycle().take(40).enumerate() {
        let mut talk = Talk::to(&site);
        talk.send(&head("PUT", &format!("/{n}"), &["Content-Length: 1000000", line]), b"");
        // Reset, not closed: the server's first word fails.
        SockRef::from(&talk.0).set_linger(Some(Duration::ZERO)).unwrap();
    }
    wait_for(|| {
        let ended = ["connections", "uploads"].map(|name| value(&site, &format!("longhaul_{name}")));
        value(&site, "longhaul_connections_total") == 40.0 && ended == [0.0, 0.0]
    });
    wait_for(|| names(&site).is_empty());
}
