//! Interrupted uploads resume: stored data is not sent again.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::serve::to;
use crate::support::{Ended, Peer, Put, Server, Writable, content, damaging, put, same};

const SIZE: usize = 48 << 20;

/// Waits until the server has synced a good part of a put at 12 MB/s: it syncs every 2 s.
fn halfway() {
    std::thread::sleep(Duration::from_millis(2800));
}

/// Creates the second run of a put.
fn again(run: Put, site: &Writable) -> Put {
    run.again(["--json", "--token"]).args([site.token()]).args(["f", &site.url("/f")])
}

#[test]
fn upload_resumes_after_a_server_restart() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 1);
    for reader in ["sendfile", "direct"] {
        let run = to(&site, "/f", &bytes).args(["--limit", "12MB/s", "--reader", reader]);
        let running = run.start();
        halfway();
        site.kill();
        std::thread::sleep(Duration::from_millis(300));
        site.restart();
        let ended = running.end().ok();
        let lines = ended.json();
        assert!(lines.iter().any(|line| line["event"] == "retrying"), "{ended:?}");
        let moved = lines.iter().rfind(|line| line["event"] == "progress").unwrap()["received"].as_u64();
        assert!(moved < Some(SIZE as u64 * 3 / 2), "{moved:?} bytes for {SIZE}");
        same(site.path("f"), &bytes);
        assert_eq!(site.names(), ["f"]);
    }
}

#[test]
fn a_bit_that_flips_on_the_way_costs_one_connection() {
    let site = Writable::encrypted();
    let bytes = content(SIZE, 7);
    for (from_server, number) in [(false, 1000), (true, 3)] {
        let relay = damaging(site.address(), move |record| {
            record.connection == 0 && record.from_server == from_server && record.number == number
        });
        let url = format!("https://localhost:{}/f", relay.address.port());
        let run = put().args(["--json", "--token"]).args([site.token()]).args(["--cacert"]).args([site.ca()]);
        let run = run.args(["f", &url]);
        fs::write(run.path("f"), &bytes).unwrap();
        let ended = run.run().ok();
        let count = |event| ended.json().iter().filter(|line| line["event"] == event).count();
        // A response damaged before its upload has begun costs a connection, but is no retry of the upload.
        assert!(count("retrying") <= 1 && count("connected") >= 2, "{ended:?}");
        same(site.path("f"), &bytes);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn killed_put_resumes_in_the_next_run() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 2);
    for server_too in [false, true] {
        let run = to(&site, "/f", &bytes).args(["--limit", "12MB/s"]);
        let running = run.start();
        halfway();
        drop(running);
        if server_too {
            site.kill();
            site.restart();
        }
        let done = again(run, &site).run().ok().done();
        assert!(done["resumed"].as_u64() > Some(10 << 20), "{done}");
        same(site.path("f"), &bytes);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn interrupt_prints_how_to_resume() {
    let site = Writable::start();
    let bytes = content(SIZE, 3);
    let run = to(&site, "/f", &bytes).args(["--limit", "12MB/s"]);
    let running = run.start();
    halfway();
    running.signal(Signal::INT);
    running.end().fails(130, &["run the same command to resume"]);
    let run = again(run, &site);
    assert!(run.run().ok().done()["resumed"].as_u64() > Some(10 << 20));
    same(site.path("f"), &bytes);
}

#[test]
fn another_source_and_no_resume_start_over() {
    let site = Writable::start();
    let bytes = content(SIZE, 4);
    for starts_over in ["--no-resume", "another"] {
        let mut run = to(&site, "/f", &bytes).args(["--limit", "12MB/s"]);
        let running = run.start();
        halfway();
        running.signal(Signal::INT);
        running.end().fails(130, &["resume"]);
        run = again(run, &site);
        let mut expected = bytes.clone();
        if starts_over == "another" {
            expected[5] ^= 1;
            fs::write(run.path("f"), &expected).unwrap();
        } else {
            run = run.args([starts_over]);
        }
        assert_eq!(run.run().ok().done()["resumed"], 0);
        same(site.path("f"), &expected);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn file_put_over_a_paused_upload_wins_and_the_upload_restarts() {
    let site = Writable::start();
    let bytes = content(SIZE, 6);
    let run = to(&site, "/f", &bytes).args(["--limit", "12MB/s"]);
    let running = run.start();
    halfway();
    running.signal(Signal::INT);
    running.end().fails(130, &["resume"]);
    let mut other = TcpStream::connect(site.address()).unwrap();
    other
        .write_all(
            b"PUT /f HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer sesame\r\nContent-Length: 5\r\n\r\nother",
        )
        .unwrap();
    let mut status = [0; 12];
    other.read_exact(&mut status).unwrap();
    assert_eq!(status, *b"HTTP/1.1 201");
    same(site.path("f"), b"other");
    assert_eq!(again(run, &site).run().ok().done()["resumed"], 0);
    same(site.path("f"), &bytes);
    assert_eq!(site.names(), ["f"]);
}

#[test]
fn upload_to_a_stopped_server_fails_and_resumes_in_the_next_run() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 5);
    let run = to(&site, "/f", &bytes).args(["--limit", "12MB/s", "--retries", "2"]);
    let running = run.start();
    halfway();
    site.kill();
    let began = Instant::now();
    running.end().fails(69, &["cannot connect"]);
    assert!(began.elapsed() < Duration::from_secs(10));
    site.restart();
    assert!(again(run, &site).run().ok().done()["resumed"].as_u64() > Some(10 << 20));
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
        let server = Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let patch = "Accept-Patch: application/partial-upload";
                let fields = if request.head.starts_with("OPTIONS") { patch } else { answer };
                peer.send(format!("HTTP/1.1 204 There\r\n{fields}\r\n\r\n"));
            }
        });
        let run = put().args(["f", &server.url("/f")]);
        fs::write(run.path("f"), "abc").unwrap();
        run.run().fails(76, &[word]);
    }
}

/// A server that accepts parts of "abc"; `complete` answers the final request.
fn scripted(complete: impl Fn(&mut Peer) + Send + Sync + 'static) -> Server {
    // It reports nothing stored at first, then two bytes.
    let asked = AtomicUsize::new(0);
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let method = request.head.split(' ').next().unwrap_or_default().to_owned();
            let first = || asked.fetch_add(1, Ordering::SeqCst) == 0;
            let answer = match method.as_str() {
                "OPTIONS" => "204 Yes\r\nAccept-Patch: application/partial-upload",
                "HEAD" if first() => "404 Nothing\r\nContent-Length: 0",
                "HEAD" => "204 There\r\nUpload-Offset: 2\r\nUpload-Length: 3\r\nUpload-Complete: ?0",
                "PATCH" if request.field("upload-complete") == Some("?1") => {
                    complete(peer);
                    continue;
                }
                "PATCH" if request.field("upload-offset") == Some("0") => {
                    "409 No\r\nUpload-Offset: 2\r\nContent-Length: 0"
                }
                _ => {
                    peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                    let mut byte = [0];
                    (&peer.stream).read_exact(&mut byte).unwrap();
                    if &byte == b"c" {
                        "204 Got\r\nUpload-Offset: 3"
                    } else {
                        "500 Wrong\r\nContent-Length: 0"
                    }
                }
            };
            if !peer.send(format!("HTTP/1.1 {answer}\r\n\r\n")) {
                return;
            }
        }
    })
}

fn abc(server: &Server, args: &[&str]) -> Ended {
    let run = put().args(args).args(["f", &server.url("/f")]);
    fs::write(run.path("f"), "abc").unwrap();
    run.run()
}

#[test]
fn upload_continues_from_a_larger_offset_of_the_server() {
    let server = scripted(|peer| {
        peer.send("HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n");
    });
    abc(&server, &[]).ok();
    let parts: Vec<_> =
        server.requests().into_iter().filter(|request| request.head.starts_with("PATCH")).collect();
    let fields = |name| parts.iter().map(|part| part.field(name)).collect::<Vec<_>>();
    assert_eq!(fields("upload-offset"), [Some("0"), Some("2"), Some("3")]);
    assert_eq!(fields("content-length"), [Some("3"), Some("1"), Some("0")]);
    // The digest of "abc".
    let digest = "blake3=:ZDezrDhGUTP/tjt1JzqNtUjFWEZdedsD/TWcbNW9nYU=:";
    assert_eq!(fields("repr-digest"), [None, None, Some(digest)]);
}

#[test]
fn digest_mismatch_is_reported() {
    let server = scripted(|peer| {
        peer.send("HTTP/1.1 422 Differs\r\nContent-Length: 0\r\n\r\n");
    });
    abc(&server, &[]).fails(65, &["422", "not what was sent"]);
}

#[test]
fn interim_responses_extend_the_wait_for_verification() {
    let server = scripted(|peer| {
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(300));
            peer.send("HTTP/1.1 102 Processing\r\n\r\n");
        }
        peer.send("HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n");
    });
    abc(&server, &["--stall-timeout", "1s", "--retries", "1"]).ok();
}
