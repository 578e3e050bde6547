//! One file over several streams: ranges of one upload to `longhaul serve --writable`.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::{RESUMABLE, put_to, requests_of, to};
use crate::support::{Ended, HttpRequest, RelayAction, Writable, content, relay_as, same};

const SIZE: usize = 24 << 20;
const STREAMS: [&str; 2] = ["--streams", "4"];
/// A rate at which each stream connects before the others have sent all.
const SLOWLY: [&str; 2] = ["--limit", "24MB/s"];

/// Returns the number of connections that carried ranges.
pub(super) fn connected(ended: &Ended) -> usize {
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

#[test]
fn file_arrives_whole_and_verified_by_either_reader() {
    let site = Writable::start();
    let bytes = content(SIZE + 4097, 1);
    for options in [
        &["--reader", "sendfile"][..],
        &["--reader", "direct"],
        &["--no-verify"],
        &["--verify", "disk"],
        &SLOWLY,
    ] {
        let ended = to(&site, "/f", &bytes).args(STREAMS).args(options).run().ok();
        if options == SLOWLY {
            assert_eq!((ended.done()["streams"].as_u64(), connected(&ended)), (Some(4), 4), "{ended:?}");
        }
        assert_eq!(ended.done()["digest"].is_null(), options == ["--no-verify"], "{ended:?}");
        same(site.path("f"), &bytes);
        assert_eq!(site.names(), ["f"]);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn put_uses_the_tuners_of_get() {
    let site = Writable::start();
    let bytes = content(SIZE, 3);
    let apt = ["--tuner", "apt", "--apt-n0", "3", "--apt-delta", "100ms"];
    let ended = to(&site, "/f", &bytes).args(apt).args(SLOWLY).run().ok();
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
                peer.send(format!("HTTP/1.1 {RESUMABLE}\r\n\r\n"));
                return RelayAction::Answered;
            }
            RelayAction::Head(request.head.clone())
        });
        put_to(&server.url("/f"), &site, &bytes).args(["--streams", streams]).run().ok();
        let parts = requests_of(&server, "PATCH");
        let sizes: Vec<_> = parts.iter().map(|request| request.field("content-length")).collect();
        assert_eq!(sizes, [Some(SIZE.to_string().as_str()), Some("0")], "{streams}");
        assert_eq!(parts[0].field("upload-offset"), Some("0"));
        same(site.path("f"), &bytes);
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn stream_that_is_cut_or_refused_ends_the_put_only_on_a_full_disk() {
    let site = Writable::start();
    let bytes = content(SIZE, 8);
    for refusal in [None, Some("503 Busy"), Some("429 Slow"), Some("507 Full")] {
        let ranges = AtomicUsize::new(0);
        let server = relay_as(site.address(), move |request, peer| {
            if !is_range(request) || ranges.fetch_add(1, Ordering::SeqCst) != 5 {
                return RelayAction::Head(request.head.clone());
            }
            if let Some(refusal) = refusal {
                let fields = "Content-Length: 0\r\nConnection: close";
                peer.send(format!("HTTP/1.1 {refusal}\r\n{fields}\r\n\r\n"));
                peer.close();
            }
            RelayAction::Cut
        });
        let ended = put_to(&server.url("/f"), &site, &bytes).args(STREAMS).args(SLOWLY).run();
        if refusal == Some("507 Full") {
            ended.fails(74, &["507", "disk is full"]);
            continue;
        }
        let ended = ended.ok();
        assert!(ended.json().iter().any(|line| line["event"] == "retrying"), "{refusal:?}: {ended:?}");
        same(site.path("f"), &bytes);
        fs::remove_file(site.path("f")).unwrap();
    }
}

/// The put ends only because another stream resends the range.
#[test]
fn stream_that_the_server_holds_up_is_taken_over_from() {
    let site = Writable::start();
    let bytes = content(SIZE, 9);
    let (ranges, (release, released)) = (AtomicUsize::new(0), channel::<()>());
    let released = Mutex::new(released);
    let server = relay_as(site.address(), move |request, _| {
        if is_range(request) && ranges.fetch_add(1, Ordering::SeqCst) == 1 {
            let _: Result<(), _> = released.lock().unwrap().recv();
            return RelayAction::Cut;
        }
        RelayAction::Head(request.head.clone())
    });
    put_to(&server.url("/f"), &site, &bytes).args(["--streams", "2"]).run().ok();
    same(site.path("f"), &bytes);
    drop(release);
}

#[test]
fn range_that_takes_longer_than_the_stall_timeout_has_not_stalled() {
    let site = Writable::start();
    let bytes = content(8 << 20, 14);
    // Ranges of 1 MiB, at 0.5 MB/s each.
    let run = to(&site, "/f", &bytes).args(STREAMS).args(["--limit", "2MB/s", "--stall-timeout", "1s"]);
    let ended = run.run().ok();
    assert!(!ended.json().iter().any(|line| line["event"] == "retrying"), "{ended:?}");
    same(site.path("f"), &bytes);
}
