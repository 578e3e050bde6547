//! Several sources of one file on the command line: sources that refuse or die during the transfer.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{SHARED, Signal, held};
use crate::support::{File, Get, Nginx, Serve, Server, content, get, partial_files, same};

fn with_mirror(first: &Server, mirror: &Server) -> Get {
    get().args([first.url("/f"), "--mirror".into(), mirror.url("/f")])
}

#[test]
fn silent_mirror_delays_nothing() {
    let bytes = content(SHARED, 5);
    let silent = Server::new(|peer| while peer.read_request().is_some() {});
    let run = with_mirror(&Server::of(File::new(bytes.clone())), &silent);
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    // The connection timeout is 30 s.
    assert!(ended.time < Duration::from_secs(20), "{:?}", ended.time);
}

/// Serves `requests` requests, then asks for a retry after a minute, and sets `refused`.
fn refusing_after(requests: usize, file: &File, refused: &Signal) -> Server {
    let (file, refused, served) = (file.clone(), Arc::clone(refused), AtomicUsize::new(0));
    Server::new(move |peer| {
        peer.serve_with(|request| {
            if served.fetch_add(1, Ordering::SeqCst) < requests {
                return file.answer(&request);
            }
            refused.store(true, Ordering::SeqCst);
            ("HTTP/1.1 429 Slow down\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n".to_owned(), &[])
        });
    })
}

/// A run that waited for the retry would count as hanging.
#[test]
fn source_that_refuses_for_long_does_not_slow_the_other() {
    let bytes = content(SHARED, 7);
    let file = File::new(bytes.clone());
    for (served, first_refuses) in [(0, true), (1, true), (1, false)] {
        let refused = Signal::default();
        let (refusing, other) = (refusing_after(served, &file, &refused), held(&file, &refused));
        let run = if first_refuses { with_mirror(&refusing, &other) } else { with_mirror(&other, &refusing) };
        run.run().ok();
        same(run.path("f"), &bytes);
    }
}

#[test]
fn file_completes_from_the_source_that_outlives_the_other() {
    let bytes = content(SHARED, 8);
    let file = File::new(bytes.clone());
    for first_dies in [false, true] {
        let died = Signal::default();
        let alive = held(&file, &died);
        let file = file.clone();
        let dying = Server::new(move |peer| {
            if peer.number > 1 {
                died.store(true, Ordering::SeqCst);
                return peer.reset();
            }
            let Some(request) = peer.read_request() else { return };
            let (head, body) = file.answer(&request);
            peer.send(head);
            peer.send(&body[..body.len().min(4 << 20)]);
            peer.reset();
        });
        let run = if first_dies { with_mirror(&dying, &alive) } else { with_mirror(&alive, &dying) };
        run.run().ok();
        same(run.path("f"), &bytes);
        assert!(partial_files(run.dir()).is_empty());
    }
}

#[test]
fn real_mirror_replaces_a_killed_server() {
    let Some(nginx) = Nginx::start() else { return };
    let bytes = content(32 << 20, 9);
    nginx.file("f", &bytes);
    for serve_first in [true, false] {
        let serve = Serve::start();
        serve.file("f", &bytes);
        let mut urls = [serve.url("/f"), nginx.url("/f")];
        if !serve_first {
            urls.reverse();
        }
        let run = get().args(["--limit", "160Mbit", &urls[0], "--mirror", &urls[1]]);
        let mut running = run.start();
        let part = run.path("f.longhaul-part");
        running.until("some is written", || fs::metadata(&part).is_ok_and(|part| part.blocks() > 0));
        drop(serve);
        running.end().ok();
        same(run.path("f"), &bytes);
    }
}
