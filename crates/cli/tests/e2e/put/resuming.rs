//! Interrupted uploads resume: stored data is not sent again.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use super::{MADE, RESUMABLE, answering, body, keep_waiting, method, moved, put_of, put_to, requests_of, to};
use crate::support::{Put, Running, Writable, content, damaging, same};

const SIZE: usize = 24 << 20;

/// Options of a put that is interrupted before it ends.
pub(super) const SLOWLY: [&str; 2] = ["--limit", "6MB/s"];
/// Much less than an interrupted put sends.
const MIN_SYNCED: u64 = 1 << 20;

/// Waits until the server has synced a part of `f`; returns its size.
pub(super) fn synced(running: &mut Running, site: &Writable) -> u64 {
    let mut size = 0;
    running.until("a part is synced", || {
        let journal = fs::read(site.path("f.longhaul-journal")).unwrap_or_default();
        let journal: Value = serde_json::from_slice(&journal).unwrap_or_default();
        let ranges = journal["committed"].as_array().into_iter().flatten();
        size = ranges.map(|range| range[1].as_u64().unwrap() - range[0].as_u64().unwrap()).sum();
        size > MIN_SYNCED
    });
    size
}

pub(super) fn again(run: Put, site: &Writable) -> Put {
    run.again(["--json", "--token"]).args([site.token()]).args(["f", &site.url("/f")])
}

#[test]
fn upload_resumes_after_a_server_restart() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 1);
    for (streams, reader) in [("1", "sendfile"), ("1", "direct"), ("4", "auto")] {
        let options = ["--streams", streams, "--reader", reader, "--limit", "12MB/s"];
        let run = to(&site, "/f", &bytes).args(options);
        let mut running = run.start();
        synced(&mut running, &site);
        site.kill();
        site.restart();
        let ended = running.end().ok();
        assert!(ended.json().iter().any(|line| line["event"] == "retrying"), "{ended:?}");
        assert!(moved(&ended) < SIZE as u64 * 3 / 2, "{ended:?}");
        site.hands_over(&bytes);
    }
}

#[test]
fn bit_that_flips_on_the_way_costs_one_connection() {
    let site = Writable::encrypted();
    let bytes = content(SIZE, 7);
    for (from_server, number) in [(false, 1000), (true, 3)] {
        let relay = damaging(site.address(), move |record| {
            record.connection == 0 && record.from_server == from_server && record.number == number
        });
        let url = format!("https://localhost:{}/f", relay.address.port());
        let ended = put_to(&url, &site, &bytes).args(["--cacert"]).args([site.ca()]).run().ok();
        let count = |event| ended.json().iter().filter(|line| line["event"] == event).count();
        // A response damaged before its upload has begun costs a connection, but is no retry of the
        // upload.
        assert!(count("retrying") <= 1 && count("connected") >= 2, "{ended:?}");
        site.hands_over(&bytes);
    }
}

#[test]
fn killed_put_resumes_in_the_next_run() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 2);
    for (streams, server_too, then) in
        [("1", false, "1"), ("1", true, "1"), ("4", false, "4"), ("4", true, "4"), ("4", true, "1")]
    {
        let run = to(&site, "/f", &bytes).args(SLOWLY).args(["--streams", streams]);
        let mut running = run.start();
        let stored = synced(&mut running, &site);
        drop(running);
        if server_too {
            site.kill();
            site.restart();
        }
        // Under a limit no stream takes over from a slow one, which would send bytes twice.
        let ended = again(run, &site).args(["--streams", then, "--limit", "48MB/s"]).run().ok();
        let resumed = ended.done()["resumed"].as_u64().unwrap();
        let case = format!("{streams} {server_too} {then}: {ended:?}");
        assert!(resumed >= stored, "{case}");
        // A server that goes on takes what the killed put has left in the sockets, and may refuse a
        // part meanwhile.
        assert!(!server_too || moved(&ended) <= SIZE as u64 - resumed, "{case}");
        site.hands_over(&bytes);
    }
}

/// Puts a small file over the paused upload.
fn replace(site: &Writable) {
    let mut other = TcpStream::connect(site.address()).unwrap();
    let head = "PUT /f HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer sesame\r\nContent-Length: 5\r\n\r\n";
    other.write_all(format!("{head}other").as_bytes()).unwrap();
    let mut status = [0; 12];
    other.read_exact(&mut status).unwrap();
    assert_eq!(status, *b"HTTP/1.1 201");
    same(site.path("f"), b"other");
}

#[test]
fn interrupted_put_resumes_and_another_source_another_file_and_no_resume_start_over() {
    let site = Writable::start();
    let bytes = content(SIZE, 4);
    for (how, streams) in
        [("same", "1"), ("same", "4"), ("--no-resume", "1"), ("another source", "1"), ("another file", "1")]
    {
        let run = to(&site, "/f", &bytes).args(SLOWLY).args(["--streams", streams]);
        let mut running = run.start();
        synced(&mut running, &site);
        running.signal(Signal::INT);
        running.end().fails(130, &["run the same command to resume"]);
        assert!(!site.path("f").exists());
        let (mut run, mut expected) = (again(run, &site), bytes.clone());
        match how {
            "same" => {}
            "--no-resume" => run = run.args([how]),
            "another source" => {
                expected[5] ^= 1;
                fs::write(run.path("f"), &expected).unwrap();
            }
            _ => replace(&site),
        }
        let resumed = run.run().ok().done()["resumed"].as_u64().unwrap();
        assert!(if how == "same" { resumed > MIN_SYNCED } else { resumed == 0 }, "{how}: {resumed}");
        site.hands_over(&expected);
    }
}

#[test]
fn upload_to_a_stopped_server_fails_and_resumes_in_the_next_run() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 5);
    let run = to(&site, "/f", &bytes).args(SLOWLY).args(["--retries", "2"]);
    let mut running = run.start();
    let stored = synced(&mut running, &site);
    site.kill();
    running.end().fails(69, &["cannot connect"]);
    site.restart();
    assert!(again(run, &site).run().ok().done()["resumed"].as_u64() >= Some(stored));
    same(site.path("f"), &bytes);
}

#[test]
fn inconsistent_upload_state_is_not_resumed() {
    for (answer, word) in [
        ("Upload-Offset: 9\r\nUpload-Length: 9", "9 of 9 bytes of a file of 3"),
        ("Upload-Offset: 2\r\nUpload-Length: 4", "2 of 4 bytes of a file of 3"),
        ("Upload-Length: 3", "unknown number"),
        ("Upload-Offset: -1", "unknown number"),
    ] {
        let server = answering(move |_, request| match method(request) {
            "OPTIONS" => RESUMABLE.to_owned(),
            _ => format!("204 There\r\n{answer}"),
        });
        put_of(b"abc", &["f", &server.url("/f")]).run().fails(76, &[word]);
    }
}

#[test]
fn upload_continues_from_a_larger_offset_and_awaits_the_verification() {
    let (made, differs) = (MADE, "422 Differs\r\nContent-Length: 0");
    for (answer, waits) in [(made, false), (made, true), (differs, false)] {
        // It reports nothing stored at first, then two bytes.
        let asked = AtomicUsize::new(0);
        let server = answering(move |peer, request| match method(request) {
            "OPTIONS" => RESUMABLE.to_owned(),
            "HEAD" if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
                "404 Nothing\r\nContent-Length: 0".to_owned()
            }
            "HEAD" => "204 There\r\nUpload-Offset: 2\r\nUpload-Length: 3\r\nUpload-Complete: ?0".to_owned(),
            _ if request.field("upload-complete") == Some("?1") => {
                if waits {
                    keep_waiting(peer);
                }
                answer.to_owned()
            }
            _ if request.field("upload-offset") == Some("0") => {
                "409 No\r\nUpload-Offset: 2\r\nContent-Length: 0".to_owned()
            }
            _ if body(peer, request) == b"c" => "204 Got\r\nUpload-Offset: 3".to_owned(),
            _ => "500 Wrong\r\nContent-Length: 0".to_owned(),
        });
        let args = ["--stall-timeout", "1s", "--retries", "1", "f", &server.url("/f")];
        let ended = put_of(b"abc", &args).run();
        match answer {
            MADE => ended.ok(),
            _ => ended.fails(65, &["422", "not what was sent"]),
        };
        let parts = requests_of(&server, "PATCH");
        let fields = |name| parts.iter().map(|part| part.field(name)).collect::<Vec<_>>();
        assert_eq!(fields("upload-offset"), [Some("0"), Some("2"), Some("3")]);
        assert_eq!(fields("content-length"), [Some("3"), Some("1"), Some("0")]);
        // The digest of "abc".
        let digest = "blake3=:ZDezrDhGUTP/tjt1JzqNtUjFWEZdedsD/TWcbNW9nYU=:";
        assert_eq!(fields("repr-digest"), [None, None, Some(digest)]);
    }
}
