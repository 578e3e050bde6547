//! Several sources of one file on the command line.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{File, Nginx, Serve, Server, content, get, partial_files, same};

const SIZE: usize = 24 << 20;
const RATE: usize = 4 << 20;

/// Serves `file` at a rate at which every mirror can join in time.
fn slow(file: &File) -> Server {
    let file = file.clone();
    Server::new(move |peer| peer.serve_at(RATE, &file))
}

fn sent(server: &Server, size: usize) -> usize {
    server.requests().iter().filter_map(|request| request.range(size)).map(|(start, end)| end - start).sum()
}

#[test]
fn mirror_at_a_short_rtt_joins_and_shares_the_work() {
    let bytes = content(SIZE, 1);
    let (one, other) = (slow(&File::new(bytes.clone())), slow(&File::new(bytes.clone())));
    let run = get().args([one.url("/f"), "--mirror".into(), other.url("/g")]);
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(!ended.stderr.contains("going on without"), "{ended:?}");
    assert!(sent(&other, SIZE) > SIZE / 4, "{} from the mirror", sent(&other, SIZE));
    // 24 MiB at 4 MiB/s would take 6 s.
    assert!(ended.time < Duration::from_millis(5400), "{:?}", ended.time);
}

#[test]
fn mirror_of_another_size_is_named_and_left_out() {
    let bytes = content(SIZE, 2);
    let (one, other) = (slow(&File::new(bytes.clone())), Server::of(File::new(content(SIZE - 1, 2))));
    let run = get().args([one.url("/f"), "--mirror".into(), other.url("/g")]);
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(ended.stderr.contains(&format!("going on without {}", other.url("/g"))), "{ended:?}");
    assert!(ended.stderr.contains(&format!("{} bytes, not {SIZE}", SIZE - 1)), "{ended:?}");
}

#[test]
fn mirror_with_other_bytes_of_the_same_size_is_left_out_without_a_digest() {
    let bytes = content(SIZE, 3);
    let (one, other) = (slow(&File::new(bytes.clone())), Server::of(File::new(content(SIZE, 4))));
    let run = get().args([one.url("/f"), "--mirror".into(), other.url("/g")]);
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(ended.stderr.contains("its bytes differ"), "{ended:?}");
}

#[test]
fn mirror_that_is_down_or_slow_delays_nothing() {
    let bytes = content(SIZE, 5);
    let one = slow(&File::new(bytes.clone()));
    let silent = Server::new(|_| std::thread::sleep(Duration::from_secs(60)));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let down = format!("http://{closed}/f");
    let run = get().args([one.url("/f"), "--mirror".into(), silent.url("/f"), "--mirror".into(), down]);
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(ended.time < Duration::from_secs(12), "{:?}", ended.time);
    assert!(ended.stderr.contains(&format!("going on without http://{closed}/f")), "{ended:?}");
}

#[test]
fn mirror_replaces_a_first_url_that_is_down() {
    let bytes = content(1 << 20, 6);
    let other = Server::of(File::new(bytes.clone()));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = get().args([format!("http://{closed}/f"), "--mirror".into(), other.url("/f")]);
    run.run().ok();
    same(run.path("f"), &bytes);
}

#[test]
fn source_that_refuses_for_long_does_not_slow_the_other() {
    let bytes = content(SIZE, 7);
    let file = File::new(bytes.clone());
    let one = slow(&file);
    for first_refuses in [false, true] {
        let refusing = refusing_after(1, &file);
        let urls = if first_refuses { [&refusing, &one] } else { [&one, &refusing] };
        let run = get().args([urls[0].url("/f"), "--mirror".into(), urls[1].url("/f")]);
        let ended = run.run().ok();
        same(run.path("f"), &bytes);
        assert!(ended.time < Duration::from_secs(12), "{first_refuses}: {:?} {}", ended.time, ended.stderr);
    }
}

#[test]
fn mirror_replaces_a_first_url_that_refuses() {
    let bytes = content(1 << 20, 10);
    let file = File::new(bytes.clone());
    let (refusing, other) = (refusing_after(0, &file), Server::of(file));
    let run = get().args([refusing.url("/f"), "--mirror".into(), other.url("/f")]);
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(ended.time < Duration::from_secs(10), "{ended:?}");
}

/// Serves `requests` requests, then answers with Retry-After: 30.
fn refusing_after(requests: usize, file: &File) -> Server {
    let (file, served) = (file.clone(), AtomicUsize::new(0));
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            if served.fetch_add(1, Ordering::SeqCst) >= requests {
                peer.send("HTTP/1.1 429 Slow down\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n");
                continue;
            }
            let (head, body) = file.answer(&request);
            peer.send(head);
            peer.trickle(body, RATE);
        }
    })
}

#[test]
fn file_completes_from_the_source_that_outlives_the_other() {
    let bytes = content(SIZE, 8);
    for first_dies in [false, true] {
        let file = File::new(bytes.clone());
        let alive = slow(&file);
        let dying = Server::new(move |peer| {
            if peer.number > 1 {
                return peer.reset();
            }
            let Some(request) = peer.read_request() else { return };
            let (head, body) = file.answer(&request);
            peer.send(head);
            peer.trickle(&body[..body.len().min(4 << 20)], RATE);
            peer.reset();
        });
        let urls = if first_dies { [&dying, &alive] } else { [&alive, &dying] };
        let run = get().args([urls[0].url("/f"), "--mirror".into(), urls[1].url("/f")]);
        let ended = run.run().ok();
        same(run.path("f"), &bytes);
        assert!(ended.time < Duration::from_secs(12), "{first_dies}: {:?}", ended.time);
        assert!(partial_files(run.dir()).is_empty());
    }
}

#[test]
fn real_mirror_replaces_a_killed_server() {
    let Some(nginx) = Nginx::start() else { return };
    let bytes = content(64 << 20, 9);
    let serve = Serve::start();
    serve.file("f", &bytes);
    nginx.file("f", &bytes);
    for serve_first in [true, false] {
        let serve = Serve::start();
        serve.file("f", &bytes);
        let urls =
            if serve_first { [serve.url("/f"), nginx.url("/f")] } else { [nginx.url("/f"), serve.url("/f")] };
        let run = get().args(["--limit", "200Mbit", &urls[0], "--mirror", &urls[1]]);
        let mut running = run.start();
        running.until("it has begun", || !partial_files(run.dir()).is_empty());
        std::thread::sleep(Duration::from_millis(600));
        drop(serve);
        let ended = running.end().ok();
        same(run.path("f"), &bytes);
        assert!(ended.time < Duration::from_secs(15), "{ended:?}");
    }
}
