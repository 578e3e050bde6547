//! One file over several streams: ranges of one upload to `longhaul serve --writable`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::serve::to;
use crate::support::{Ended, HttpRequest, Put, RelayAction, Server, Writable, content, put, relay_as, same};

const SIZE: usize = 48 << 20;
const STREAMS: [&str; 2] = ["--streams", "4"];

/// Waits until the server has synced a good part of a put at 12 MB/s: it syncs every 2 s.
fn halfway() {
    std::thread::sleep(Duration::from_millis(2800));
}

/// Returns the number of connections that carried ranges.
pub(crate) fn connected(ended: &Ended) -> usize {
    let lines = ended.json();
    let ids = lines.iter().filter(|line| line["event"] == "connected").map(|line| line["stream"].as_u64());
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len()
}

fn is_range(request: &HttpRequest) -> bool {
    request.head.starts_with("PATCH") && request.field("content-range").is_some()
}

/// A put of `bytes` through a relay to `site`.
fn past(server: &Server, site: &Writable, bytes: &[u8]) -> Put {
    let run = put().args(["--json", "--token"]).args([site.token()]).args(["f", &server.url("/f")]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

#[test]
fn a_file_arrives_whole_and_verified_by_either_reader() {
    let site = Writable::start();
    let bytes = content(SIZE + 4097, 1);
    for options in
        [&["--reader", "sendfile"][..], &["--reader", "direct"], &["--no-verify"], &["--verify", "disk"]]
    {
        let ended = to(&site, "/f", &bytes).args(STREAMS).args(options).run().ok();
        let done = ended.done();
        assert_eq!((done["streams"].as_u64(), connected(&ended)), (Some(4), 4), "{options:?} {done}");
        assert_eq!(done["digest"].is_null(), options == ["--no-verify"], "{done}");
        same(site.path("f"), &bytes);
        assert_eq!(site.names(), ["f"]);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn over_tls() {
    let site = Writable::encrypted();
    let bytes = content((20 << 20) + 77, 2);
    let run = to(&site, "/f", &bytes).args(STREAMS).args(["--cacert"]).args([site.ca()]);
    assert_eq!(connected(&run.run().ok()), 4);
    same(site.path("f"), &bytes);
}

#[test]
fn put_uses_the_tuners_of_get() {
    let site = Writable::start();
    let bytes = content(SIZE, 3);
    let apt = ["--tuner", "apt", "--apt-n0", "3", "--apt-delta", "100ms"];
    let ended = to(&site, "/f", &bytes).args(apt).args(["--limit", "100MB/s"]).run().ok();
    assert!(connected(&ended) >= 3, "{ended:?}");
    same(site.path("f"), &bytes);
}

#[test]
fn one_stream_and_a_server_without_ranges_get_one_request() {
    let site = Writable::start();
    let bytes = content(SIZE, 4);
    for (streams, knows_ranges) in [("1", true), ("4", false), ("auto", true)] {
        let server = relay_as(site.address(), move |request, peer| {
            if request.head.starts_with("OPTIONS") && !knows_ranges {
                peer.send("HTTP/1.1 204 Yes\r\nAccept-Patch: application/partial-upload\r\n\r\n");
                return RelayAction::Answered;
            }
            RelayAction::Head(request.head.clone())
        });
        past(&server, &site, &bytes).args(["--streams", streams]).run().ok();
        let parts: Vec<_> =
            server.requests().into_iter().filter(|request| request.head.starts_with("PATCH")).collect();
        let sizes: Vec<_> = parts.iter().map(|request| request.field("content-length")).collect();
        assert_eq!(sizes, [Some(SIZE.to_string().as_str()), Some("0")], "{streams}");
        assert_eq!(parts[0].field("upload-offset"), Some("0"));
        same(site.path("f"), &bytes);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn a_put_that_was_killed_sends_only_what_is_missing() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 5);
    for (server_too, then) in [(false, "4"), (true, "4"), (true, "1")] {
        let run = to(&site, "/f", &bytes).args(STREAMS).args(["--limit", "12MB/s"]);
        let running = run.start();
        halfway();
        drop(running);
        if server_too {
            site.kill();
            site.restart();
        }
        let again = run.again(["--json", "--streams", then, "--token"]).args([site.token()]);
        let ended = again.args(["f", &site.url("/f")]).run().ok();
        let resumed = ended.done()["resumed"].as_u64().unwrap();
        assert!(resumed > 10 << 20, "{resumed}");
        let moved =
            ended.json().iter().rfind(|line| line["event"] == "progress").unwrap()["received"].as_u64();
        assert!(moved.unwrap() <= SIZE as u64 - resumed, "{moved:?} of {SIZE} after {resumed}");
        same(site.path("f"), &bytes);
        assert_eq!(site.names(), ["f"]);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn upload_resumes_after_a_server_restart() {
    let mut site = Writable::start();
    let bytes = content(SIZE, 6);
    let run = to(&site, "/f", &bytes).args(STREAMS).args(["--limit", "12MB/s"]);
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

#[test]
fn interrupt_prints_how_to_resume() {
    let site = Writable::start();
    let run = to(&site, "/f", &content(SIZE, 7)).args(STREAMS).args(["--limit", "12MB/s"]);
    let running = run.start();
    halfway();
    running.signal(Signal::INT);
    running.end().fails(130, &["run the same command to resume"]);
    assert!(!site.path("f").exists());
}

#[test]
fn a_stream_that_is_cut_or_refused_does_not_end_the_put() {
    let site = Writable::start();
    let bytes = content(SIZE, 8);
    for refusal in [None, Some("503 Busy"), Some("429 Slow")] {
        let ranges = AtomicUsize::new(0);
        let server = relay_as(site.address(), move |request, peer| {
            if is_range(request) && ranges.fetch_add(1, Ordering::SeqCst) == 5 {
                if let Some(refusal) = refusal {
                    peer.send(format!(
                        "HTTP/1.1 {refusal}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    ));
                    peer.close();
                }
                return RelayAction::Cut;
            }
            RelayAction::Head(request.head.clone())
        });
        let run = past(&server, &site, &bytes).args(STREAMS).args(["--limit", "40MB/s"]);
        let ended = run.run().ok();
        let again = ended.json().iter().filter(|line| line["event"] == "retrying").count();
        assert!(again >= 1, "{refusal:?}: {ended:?}");
        same(site.path("f"), &bytes);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn a_stream_that_the_server_holds_up_is_taken_over_from() {
    let site = Writable::start();
    let bytes = content(SIZE, 9);
    let ranges = AtomicUsize::new(0);
    let server = relay_as(site.address(), move |request, _| {
        if is_range(request) && ranges.fetch_add(1, Ordering::SeqCst) == 1 {
            // Longer than the put takes; the client must reset the connection meanwhile.
            std::thread::sleep(Duration::from_secs(20));
            return RelayAction::Cut;
        }
        RelayAction::Head(request.head.clone())
    });
    // Large blocks, so that the socket's buffer cannot hold one.
    let ended = past(&server, &site, &bytes).args(["--streams", "2", "--limit", "30MB/s"]).run().ok();
    assert!(ended.time < Duration::from_secs(18), "{ended:?}");
    same(site.path("f"), &bytes);
}

#[test]
fn full_disk_refusal_of_a_range_ends_the_put() {
    let site = Writable::start();
    let server = relay_as(site.address(), move |request, peer| {
        if is_range(request) {
            peer.send("HTTP/1.1 507 Full\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            peer.close();
            return RelayAction::Cut;
        }
        RelayAction::Head(request.head.clone())
    });
    let ended = past(&server, &site, &content(SIZE, 10)).args(STREAMS).run();
    let ended = ended.fails(74, &["507", "disk is full"]);
    assert!(ended.time < Duration::from_secs(10), "{ended:?}");
}

#[test]
fn changed_source_never_gets_its_name() {
    let site = Writable::start();
    for (shrinks, reader) in [(false, "sendfile"), (true, "sendfile"), (false, "direct")] {
        let run = to(&site, "/f", &content(SIZE, 11)).args(STREAMS);
        let run = run.args(["--limit", "16MB/s", "--reader", reader]);
        let mut running = run.start();
        running.until("it has begun", || !site.names().is_empty());
        std::thread::sleep(Duration::from_millis(300));
        let file = File::options().write(true).open(run.path("f")).unwrap();
        if shrinks {
            file.set_len(5).unwrap()
        } else {
            file.write_all_at(b"new", 5).unwrap()
        }
        running.end().fails(65, &["f changed while it was sent"]);
        assert!(!site.path("f").exists());
    }
}

#[test]
fn a_second_put_to_the_name_is_refused() {
    let site = Writable::start();
    let bytes = content(SIZE, 12);
    let run = to(&site, "/f", &bytes).args(STREAMS).args(["--limit", "12MB/s"]);
    let mut running = run.start();
    running.until("it has begun", || !site.names().is_empty());
    let other = to(&site, "/f", &content(SIZE, 13)).args(STREAMS);
    other.run().fails(75, &["423"]);
    running.end().ok();
    same(site.path("f"), &bytes);
}

#[test]
fn a_range_that_takes_longer_than_the_stall_timeout_has_not_stalled() {
    let site = Writable::start();
    let bytes = content(20 << 20, 14);
    // Blocks of 2.5 MiB, at 1 MB/s each.
    let run = to(&site, "/f", &bytes).args(["--streams", "2", "--limit", "2MB/s", "--stall-timeout", "2s"]);
    let ended = run.run().ok();
    assert!(!ended.json().iter().any(|line| line["event"] == "retrying"), "{ended:?}");
    same(site.path("f"), &bytes);
}
