//! Several streams against servers that limit connections, and connections that break anywhere.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{File, PartialFiles, Peer, Server, content, get, partial_files, same};

const SIZE: usize = 24 << 20;

/// Serves at a rate that leaves work for every stream.
fn serve_slowly(peer: &mut Peer, file: &File) {
    peer.serve_at(20_000_000, file);
}

/// Fetches with four streams from a server that handles all connections except the first by `refuse`.
fn with_only_one(refuse: impl Fn(&mut Peer) + Send + Sync + 'static) -> crate::support::Ended {
    let file = File::new(content(SIZE, 1));
    let served = file.clone();
    let server =
        Server::new(move |peer| if peer.number == 0 { serve_slowly(peer, &served) } else { refuse(peer) });
    let args = ["--streams", "4", "--retries", "1", "--stall-timeout", "2s", "--connect-timeout", "1s"];
    let run = get().args(args).args([&server.url("/f")]);
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    assert!(ended.time < Duration::from_secs(15), "{ended:?}");
    ended
}

#[test]
fn further_connections_closed_at_once() {
    let ended = with_only_one(|_| {});
    assert!(ended.stderr.contains("going on without stream"), "{ended:?}");
}

#[test]
fn further_connections_reset() {
    with_only_one(|peer| {
        peer.read_request();
        peer.reset();
    });
}

#[test]
fn further_connections_get_retry_after() {
    with_only_one(|peer| {
        peer.read_request();
        peer.send("HTTP/1.1 503 Too many\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n");
        peer.close();
    });
}

/// The file completes long before the server's Retry-After, which must not delay the end.
#[test]
fn further_connections_get_a_short_retry_after() {
    with_only_one(|peer| {
        peer.read_request();
        peer.send("HTTP/1.1 503 Too many\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n");
        peer.close();
    });
}

#[test]
fn further_connections_forbidden() {
    with_only_one(|peer| {
        peer.read_request();
        peer.send("HTTP/1.1 403 Too many\r\nContent-Length: 0\r\n\r\n");
        peer.close();
    });
}

#[test]
fn further_connections_never_answered() {
    with_only_one(|peer| {
        peer.read_request();
        std::thread::sleep(Duration::from_secs(30));
    });
}

#[test]
fn a_file_that_changes_between_ranges_is_never_mixed() {
    let (old, new) = (File::new(content(17 << 20, 2)), File::new(content(17 << 20, 3)));
    for then in [Some("\"v2\""), None] {
        // Sends parts of the new file regardless of If-Range, or the whole new file in response to it.
        for obeys in [false, true] {
            let server = changing((old.clone(), Some("\"v1\"")), (new.clone(), then), obeys);
            let run = get().args(["--streams", "4", "-o", "f", &server.url("/f")]);
            let ended = run.run().fails(65, &[&server.url("/f"), "changed on the server", "--no-resume"]);
            assert!(!run.path("f").exists() && ended.time < Duration::from_secs(15), "{ended:?}");
            if !obeys && then.is_some() {
                // The partial file is of the old version, and is kept until it is discarded explicitly.
                let left = PartialFiles::of(&run);
                run.run().fails(65, &["f.longhaul-part", "v1", "v2", "--no-resume"]);
                left.is_kept(&run);
            }
            run.args(["--no-resume"]).run().ok();
        }
    }
}

/// With a weak ETag nothing is combined: one response has to provide the whole file.
#[test]
fn changing_file_with_weak_etags_is_taken_from_one_response() {
    let (old, new) = (File::new(content(17 << 20, 2)), File::new(content(17 << 20, 3)));
    for obeys in [false, true] {
        let server = changing((old.clone(), Some("W/\"v1\"")), (new.clone(), Some("W/\"v2\"")), obeys);
        let run = get().args(["--streams", "4", "-o", "f", &server.url("/f")]);
        run.run().ok();
        same(run.path("f"), &new.bytes);
        assert_eq!(partial_files(run.dir()), [""; 0]);
    }
}

/// Serves one file in its first response and another in all later ones.
fn changing(
    (old, first): (File, Option<&'static str>),
    (new, then): (File, Option<&'static str>),
    obeys_if_range: bool,
) -> Server {
    let (old, new) = (File { etag: first, ..old }, File { etag: then, ..new });
    let served = AtomicUsize::new(0);
    Server::new(move |peer| {
        peer.serve_with(|mut request| {
            if !obeys_if_range {
                request.head = request.head.replace("If-Range", "X-Ignored");
            }
            if served.fetch_add(1, Ordering::SeqCst) == 0 {
                old.answer(&request)
            } else {
                new.answer(&request)
            }
        });
    })
}

#[test]
fn many_streams_for_a_small_file() {
    let file = File::new(content(10, 4));
    let server = Server::of(file.clone());
    let run = get().args(["--streams", "256", "--json", &server.url("/f")]);
    let done = run.run().ok().done();
    assert_eq!(done["streams"], 1);
    assert_eq!(server.requests().len(), 1);
    same(run.path("f"), &file.bytes);
}

#[test]
fn parts_smaller_than_asked_for_are_taken() {
    let file = File::new(content(5 << 20, 5));
    let served = file.clone();
    let server = Server::new(move |peer| {
        peer.serve_with(|request| {
            let size = served.bytes.len();
            let (start, end) = request.range(size).unwrap_or((0, size));
            let end = end.min(start + 700_000);
            let head = format!(
                "HTTP/1.1 206 Part\r\nETag: \"v1\"\r\nContent-Range: bytes {start}-{}/{size}\r\nContent-Length: {}\r\n\r\n",
                end - 1,
                end - start
            );
            (head, &served.bytes[start..end])
        });
    });
    let run = get().args(["--streams", "2", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &file.bytes);
}

#[test]
fn part_of_unknown_total_is_not_the_whole_file() {
    let file = File::new(content(17 << 20, 6));
    let served = file.clone();
    let server = Server::new(move |peer| {
        peer.serve_with(|request| {
            let (head, body) = served.answer(&request);
            (head.replace(&format!("/{}\r\n", served.bytes.len()), "/*\r\n"), body)
        });
    });
    let run = get().args(["--streams", "4", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &file.bytes);
}

#[test]
fn unrequested_parts_are_refused() {
    for (range, word) in [
        ("bytes 1-9/100", "asked for"),
        ("bytes 0-99/100", "Content-Length"),
        ("bytes */100", "Content-Range"),
        ("bytes 5-2/100", "Content-Range"),
        ("bytes 0-9/5", "Content-Range"),
        ("nonsense", "Content-Range"),
    ] {
        let server = Server::answering(format!(
            "HTTP/1.1 206 Part\r\nETag: \"v1\"\r\nContent-Range: {range}\r\nContent-Length: 10\r\n\r\n0123456789"
        ));
        let run = get().args(["--streams", "2", "--retries", "0", "-o", "f", &server.url("/f")]);
        run.run().fails(76, &[&server.url("/f"), word]);
        assert!(!run.path("f").exists());
    }
}

/// Breaks connections at offsets drawn from `seed` until the file is complete.
fn broken_anywhere(seed: u64) {
    let draws = content(8 * 4096, seed);
    let draw = move |n: usize| {
        let at = n % 4096 * 8;
        usize::from_le_bytes(draws[at..at + 8].try_into().unwrap())
    };
    let file = File::new(content(1_000_000 + draw(0) % 5_000_000, seed + 100));
    let streams = (1 + draw(1) % 8).to_string();
    let writer = ["direct", "mmap", "buffered"][draw(2) % 3];
    let buffer = format!("{}KiB", 128 << (draw(3) % 6));
    let served = file.clone();
    let server = Server::new(move |peer| {
        // The budget grows with the number of connections, so that the test ends.
        let mut budget = draw(4 + peer.number) % (300_000 << (peer.number / 8).min(5));
        while let Some(request) = peer.read_request() {
            let (head, body) = served.answer(&request);
            let answer = [head.as_bytes(), body].concat();
            let part = answer.len().min(budget);
            if !peer.send(&answer[..part]) || part < answer.len() {
                if draw(peer.number + 7) % 2 == 0 {
                    peer.reset();
                }
                return;
            }
            budget -= part;
        }
    });
    let args = ["--streams", &streams, "--writer", writer, "--app-buffer", &buffer, "--json", "-o", "f"];
    let run = get().args(args).args(["--retries", "1", &server.url("/f")]);
    let started = std::time::Instant::now();
    let (mut runs, mut resumed) = (0, 0);
    loop {
        runs += 1;
        let ended = run.run();
        if ended.status.success() {
            assert!(ended.done()["resumed"].as_u64().unwrap() >= resumed, "seed {seed}: {ended:?}");
            break;
        }
        assert_eq!(ended.status.code(), Some(75), "seed {seed}: {ended:?}");
        assert!(!run.path("f").exists() && runs < 30, "seed {seed}: {ended:?}");
        let opened = ended.json().into_iter().find(|line| line["event"] == "opened");
        let now = opened.map_or(0, |line| line["resumed"].as_u64().unwrap());
        assert!(now >= resumed || now == 0, "seed {seed}: {ended:?}");
        resumed = resumed.max(now);
    }
    same(run.path("f"), &file.bytes);
    println!(
        "seed {seed}: {} bytes, {streams} streams, {runs} runs, {} requests, {:?}",
        file.bytes.len(),
        server.requests().len(),
        started.elapsed()
    );
    assert_eq!(partial_files(run.dir()), [""; 0], "seed {seed}");
}

#[test]
fn connections_that_break_anywhere_one() {
    (1..=3).for_each(broken_anywhere);
}

#[test]
fn connections_that_break_anywhere_two() {
    (4..=6).for_each(broken_anywhere);
}
