//! Uploads that break off: what can be resumed is kept, what cannot is gone, and nothing is ever half a file.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use longhaul_server::ServerOutcome;
use socket2::SockRef;

use crate::site::noise;
use crate::uploads::{ID, Talk, content, head, names, patch, resource, writable, writable_with};
use crate::uploads_refused::wait_for;

const STALL: Duration = Duration::from_millis(400);

#[test]
fn interrupted_upload_resumes_at_the_journalled_offset() {
    let (site, file, url) = (writable(), noise(12_000_001), resource("f", ID));
    let mut first = Talk::to(&site);
    first.send(&patch(&url, 0, file.len(), file.len(), false), &file[..10_000_000]);
    drop(first);
    let offset = || {
        let there = Talk::to(&site).ask(&head("HEAD", &url, &[]), b"");
        there.header("upload-offset").map_or(0, |offset| offset.parse::<usize>().unwrap())
    };
    wait_for(|| offset() == 10_000_000);
    assert_eq!(site.get("/f", &[]).status, 404);
    let rest = &file[10_000_000..];
    // The first may be unlocking the file just now.
    wait_for(|| {
        Talk::to(&site).ask(&patch(&url, 10_000_000, rest.len(), file.len(), true), rest).status == 201
    });
    assert!(content(&site, "f") == file);
    assert_eq!(names(&site), ["f"]);
}

#[test]
fn resuming_client_supersedes_its_silent_connection() {
    let (site, url) = (writable(), resource("f", ID));
    let mut dead = Talk::to(&site);
    dead.send(&patch(&url, 0, 10, 10, true), b"12345");
    wait_for(|| names(&site).len() == 2);
    let rest = patch(&url, 5, 5, 10, true);
    assert_eq!(Talk::to(&site).ask(&rest, b"67890").status, 423, "the first may be alive");
    std::thread::sleep(Duration::from_millis(3_100));
    let offset = || {
        let there = Talk::to(&site).ask(&head("HEAD", &url, &[]), b"");
        there.header("upload-offset").unwrap().to_owned()
    };
    // Another upload ID still gets 423.
    let other = resource("f", longhaul_core::proto::http::UploadId::new([1; 16]));
    assert_eq!(Talk::to(&site).ask(&patch(&other, 0, 5, 5, true), b"67890").status, 423);
    // To be asked how far it is tells that the client has given the old connection up.
    assert_eq!((offset(), dead.answer().status), ("5".to_owned(), 503));
    assert_eq!(Talk::to(&site).ask(&rest, b"67890").status, 201);
    assert_eq!(content(&site, "f"), b"1234567890");
}

#[test]
fn bodies_that_are_not_what_they_say() {
    let (site, url) = (writable(), resource("f", ID));
    let chunked = |target| head("PUT", target, &["Transfer-Encoding: chunked"]);
    let put = head("PUT", "/g", &["Content-Length: 100"]);
    for (request, body) in [
        (put.as_str(), "short"),
        (&chunked("/g"), "5\r\nshort\r\n"),
        (&chunked("/g"), "5\r\nshort\r\n0\r\n"),
        (&chunked("/g"), "many\r\n"),
        (&chunked("/g"), "ffffffffffffffffff\r\n"),
        (&patch(&url, 0, 100, 100, true), "short"),
    ] {
        let mut talk = Talk::to(&site);
        talk.send(request, body.as_bytes());
        talk.0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(talk.answer().status, 400, "{request}{body}");
    }
    // Of a whole file nothing is kept, of an upload what came.
    assert_eq!(names(&site), ["f.longhaul-journal", "f.longhaul-part"]);
    let there = Talk::to(&site).ask(&head("HEAD", &url, &[]), b"");
    assert_eq!(there.header("upload-offset"), Some("5"));
    // Longer than was announced: the rest is the next request, and none.
    let mut talk = Talk::to(&site);
    assert_eq!(talk.ask(&head("PUT", "/h", &["Content-Length: 5"]), b"hello and more\r\n\r\n").status, 201);
    assert_eq!((talk.answer().status, content(&site, "h")), (400, b"hello".to_vec()));
    // Chunks that go on past the size of the file.
    let long =
        patch(&resource("i", ID), 0, 0, 5, true).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    assert_eq!(Talk::to(&site).ask(&long, b"8\r\ntoo long\r\n0\r\n\r\n").status, 400);
    assert!(!site.dir.path().join("i").exists());
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let site = writable_with(|config| config.limits.stall = STALL);
    for first in [b"".as_slice(), b"a few"] {
        let started = Instant::now();
        let answer = Talk::to(&site).ask(&head("PUT", "/f", &["Content-Length: 1000"]), first);
        assert!(answer.status == 408 && started.elapsed() < Duration::from_secs(5), "{answer:?}");
    }
    // A byte now and then is no better.
    let mut talk = Talk::to(&site);
    talk.send(&head("PUT", "/f", &["Content-Length: 1000"]), b"");
    let started = Instant::now();
    let mut slow = talk.0.try_clone().unwrap();
    std::thread::spawn(move || {
        use std::io::Write;
        while slow.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(talk.answer().status == 408 && started.elapsed() < Duration::from_secs(5));
    wait_for(|| names(&site).is_empty());
}

#[test]
fn an_ending_server_keeps_what_has_come() {
    let site = writable_with(|config| config.limits.grace = Duration::from_millis(300));
    let (file, url) = (noise(5_000_000), resource("f", ID));
    let mut part = Talk::to(&site);
    part.send(&patch(&url, 0, file.len(), file.len(), true), &file[..3_000_000]);
    let mut whole = Talk::to(&site);
    whole.send(&head("PUT", "/g", &["Content-Length: 10"]), b"12345");
    wait_for(|| names(&site).len() == 3);
    std::thread::sleep(Duration::from_millis(200));
    let dir = site.dir.path().to_owned();
    let moved = tempfile::tempdir().unwrap();
    site.stopper.finish();
    wait_for(|| {
        std::fs::read_to_string(dir.join("f.longhaul-journal")).is_ok_and(|text| text.contains("3000000"))
    });
    // Of the whole file nothing stays.
    wait_for(|| !dir.join("g.longhaul-part").exists());
    for name in ["f.longhaul-part", "f.longhaul-journal"] {
        std::fs::copy(dir.join(name), moved.path().join(name)).unwrap();
    }
    assert_eq!(site.ended(), ServerOutcome { cut: 2 });
    let again = writable_with(|config| config.root = moved.path().to_owned());
    let there = Talk::to(&again).ask(&head("HEAD", &url, &[]), b"");
    assert_eq!(there.header("upload-offset"), Some("3000000"));
    let rest = patch(&url, 3_000_000, 2_000_000, file.len(), true);
    assert_eq!(Talk::to(&again).ask(&rest, &file[3_000_000..]).status, 201);
    assert!(std::fs::read(moved.path().join("f")).unwrap() == file);
}

#[test]
fn an_upload_under_way_is_finished_within_the_grace() {
    let site = writable_with(|config| config.limits.grace = Duration::from_secs(20));
    let mut talk = Talk::to(&site);
    talk.send(&head("PUT", "/f", &["Content-Length: 10"]), b"12345");
    wait_for(|| names(&site).len() == 1);
    site.stopper.finish();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(talk.ask("", b"67890").status, 201);
    assert_eq!(content(&site, "f"), b"1234567890");
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
}

#[test]
fn upload_completes_by_further_requests_while_the_server_ends() {
    let site = writable_with(|config| config.limits.grace = Duration::from_secs(20));
    let (file, [f, g]) = (noise(2_000_000), ["f", "g"].map(|name| resource(name, ID)));
    let [mut part, mut other] = [&f, &g].map(|url| {
        let mut talk = Talk::to(&site);
        assert_eq!(talk.ask(&patch(url, 0, 1_000_000, file.len(), false), &file[..1_000_000]).status, 204);
        talk
    });
    site.stopper.finish();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(other.ask(&head("GET", "/f", &[]), b"").status, 503, "it does not belong to the upload");
    assert_eq!(part.ask(&patch(&f, 1_000_000, 1_000_000, file.len(), false), &file[1_000_000..]).status, 204);
    assert_eq!(part.ask(&patch(&f, 2_000_000, 0, file.len(), true), b"").status, 201);
    assert!(std::fs::read(site.dir.path().join("f")).unwrap() == file);
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
}

/// Begins an upload; returns once it is in progress, which the server's 100 Continue tells.
fn begin(talk: &mut Talk, request: &str) {
    let request = request.replacen("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1);
    assert_eq!(talk.ask(&request, b"").status, 100);
}

#[test]
fn upload_in_progress_gets_a_further_connection_while_the_server_ends() {
    let site = writable_with(|config| config.limits.grace = Duration::from_secs(20));
    let (file, url) = (noise(2_000_000), resource("f", ID));
    let mut first = Talk::to(&site);
    begin(&mut first, &patch(&url, 0, 2_000_000, file.len(), false));
    first.send("", &file[..1_000_000]);
    site.stopper.finish();
    std::thread::sleep(Duration::from_millis(300));
    let new = patch(&resource("g", ID), 0, 10, 10, true);
    assert_eq!(Talk::to(&site).ask(&new, b"").status, 503, "a new upload");
    assert_eq!(first.ask("", &file[1_000_000..]).status, 204);
    drop(first);
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
}

#[test]
fn further_ranges_of_a_file_are_sent_while_the_server_ends() {
    let site = writable_with(|config| config.limits.grace = Duration::from_secs(20));
    std::fs::write(site.dir.path().join("f"), "0123456789".repeat(100)).unwrap();
    let mut talk = Talk::to(&site);
    let range = |range: &str| head("GET", "/f", &[&format!("Range: bytes={range}")]);
    assert_eq!(talk.ask(&range("0-99"), b"").status, 206);
    let started = Instant::now();
    site.stopper.finish();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(talk.ask(&range("100-199"), b"").status, 206);
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
    assert!(started.elapsed() < Duration::from_secs(8), "an idle connection is not kept for the grace");
}

#[test]
fn connection_reset_before_the_body_leaves_no_file() {
    let site = writable();
    for (n, line) in ["Expect: 100-continue", "X: y"].into_iter().cycle().take(40).enumerate() {
        let mut talk = Talk::to(&site);
        talk.send(&head("PUT", &format!("/{n}"), &["Content-Length: 1000000", line]), b"");
        // Reset, not closed: the server's first word fails.
        SockRef::from(&talk.0).set_linger(Some(Duration::ZERO)).unwrap();
    }
    // All have begun by then.
    std::thread::sleep(Duration::from_millis(300));
    wait_for(|| names(&site).is_empty());
}

#[test]
fn framing_is_no_body() {
    let site = writable_with(|config| config.limits.stall = STALL);
    let put = head("PUT", "/f", &["Transfer-Encoding: chunked"]);
    for (start, byte, status) in [("5;", b"x", 408), ("5\r\nhello\r\n0\r\nA: ", b"b", 408), ("0", b"0", 400)]
    {
        let started = Instant::now();
        let mut talk = Talk::to(&site);
        talk.send(&put, start.as_bytes());
        let mut slow = talk.0.try_clone().unwrap();
        std::thread::spawn(move || {
            use std::io::Write;
            while slow.write_all(byte).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        assert_eq!(talk.answer().status, status, "{start}");
        assert!(started.elapsed() < Duration::from_secs(5));
        wait_for(|| names(&site).is_empty());
    }
}

#[test]
fn superseded_connection_frees_its_upload_slot() {
    let (site, url) = (writable_with(|config| config.limits.uploads = 1), resource("f", ID));
    let mut dead = Talk::to(&site);
    dead.send(&patch(&url, 0, 10, 10, true), b"12345");
    wait_for(|| names(&site).len() == 2);
    std::thread::sleep(Duration::from_millis(3_100));
    // The dead connection has the only place; the answer says how far it came.
    let early = Talk::to(&site).ask(&patch(&url, 0, 10, 10, true), b"");
    assert_eq!((early.status, early.header("upload-offset")), (409, Some("5")));
    assert_eq!(Talk::to(&site).ask(&patch(&url, 5, 5, 10, true), b"67890").status, 201);
    assert_eq!(content(&site, "f"), b"1234567890");
}

#[test]
fn a_whole_file_takes_the_place_of_a_paused_upload() {
    let (site, url) = (writable(), resource("f", ID));
    let mut talk = Talk::to(&site);
    for put in [
        (head("PUT", "/f", &["Content-Length: 3"]), "new"),
        (head("PUT", "/f", &["Transfer-Encoding: chunked"]), "3\r\nnew\r\n0\r\n\r\n"),
    ] {
        assert_eq!(talk.ask(&patch(&url, 0, 5, 9, false), b"12345").status, 204);
        assert!(matches!(talk.ask(&put.0, put.1.as_bytes()).status, 201 | 204));
        assert_eq!(talk.ask(&head("HEAD", &url, &[]), b"").status, 404);
        assert_eq!((content(&site, "f"), names(&site)), (b"new".to_vec(), vec!["f".to_owned()]));
    }
}

#[test]
fn finishing_server_refuses_to_begin_an_upload_by_a_range() {
    let site = writable_with(|config| config.limits.grace = Duration::from_secs(20));
    let mut running = Talk::to(&site);
    begin(&mut running, &head("PUT", "/f", &["Content-Length: 10"]));
    site.stopper.finish();
    // Connections are accepted while an upload is in progress.
    let mut new = Talk::to(&site);
    let fields = ["Content-Type: application/partial-upload", "Content-Range: bytes 4-8/9"];
    let lines = [&fields[..], &["Upload-Complete: ?0", "Content-Length: 5"]].concat();
    let answer = new.ask(&head("PATCH", &resource("g", ID), &lines), b"");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{answer:?}");
    assert_eq!(names(&site), ["f.longhaul-part"]);
    assert_eq!(running.ask("", b"1234567890").status, 201);
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
}
