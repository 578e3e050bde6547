//! How connections are kept, shared, limited and ended, and which requests are refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::metrics::{value, watched};
use crate::site::{Answer, Site, noise, skipped, wait_for};
use crate::uploads::{ID, Talk, head, resource};

const KEPT: &[u8] = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Reads until the peer closes or resets the connection.
fn to_the_end(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    if let Err(error) = stream.read_to_end(&mut all) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = Site::start();
    let content = noise(1 << 20);
    site.write("f", &content);
    let block = 64 << 10;
    let request = |i| {
        let range = format!("bytes={}-{}", i * block, (i + 1) * block - 1);
        format!("GET /f HTTP/1.1\r\nHost: h\r\nRange: {range}\r\n\r\n")
    };
    let requests: String = (0..16).map(request).collect();
    let mut stream = site.connect();
    // A head that is split must wait for its other half: the first replies arrive before it does.
    let (first, rest) = requests.as_bytes().split_at(500);
    stream.write_all(first).unwrap();
    let mut all = vec![0; block];
    stream.read_exact(&mut all).unwrap();
    stream.write_all(rest).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut all).unwrap();
    for i in 0..16 {
        let end = all.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(all.drain(..end).collect()).unwrap();
        assert!(head.starts_with("HTTP/1.1 206"), "{head}");
        let body: Vec<u8> = all.drain(..block).collect();
        assert!(body == content[i * block..(i + 1) * block], "block {i}");
    }
    assert!(all.is_empty());
}

#[test]
fn what_is_not_served_is_refused_clearly() {
    let site = Site::start();
    site.write("f", b"x");
    let big = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "b".repeat(1 << 20));
    // A body larger than any buffer still meets its answer, not a reset.
    let huge = format!("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n{}", "x".repeat(900_000));
    for (text, status) in [
        ("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nGET ", 405),
        ("POST /f HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 405),
        ("DELETE /f HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (&head("DELETE", &resource("f", ID), &[]), 405),
        (&head("PATCH", &resource("f", ID), &[]), 405),
        (&head("HEAD", &resource("f", ID), &[]), 200),
        ("GET /f HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", 400),
        ("\u{16}\u{3}\u{1}garbage\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 204),
        ("OPTIONS /f HTTP/1.1\r\nHost: h\r\n\r\n", 204),
        (&big, 431),
        (&huge, 405),
        ("G\u{e4}T /f HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\nX\u{e4}: y\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\nX Y: z\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\nX\u{0}: y\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\n: y\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h/../x\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
    ] {
        let answer = Answer::read(&site.raw(text));
        let start: String = text.chars().take(50).collect();
        assert_eq!(answer.status, status, "{start}");
        if matches!(status, 405 | 204) {
            assert_eq!(answer.header("Allow"), Some("GET, HEAD, OPTIONS"), "{start}");
            assert_eq!(answer.header("Accept-Patch"), None, "{start}");
        }
        // What follows a refused body is never read as a request.
        assert!(!answer.body.contains("\r\nDate:"), "{}", answer.body);
    }
    // An empty line before a request is none.
    assert_eq!(Answer::read(&site.raw("\r\nGET /f HTTP/1.1\r\nHost: h\r\n\r\n")).status, 200);
    // Garbage behind a request ends the connection after the reply.
    let request = String::from_utf8_lossy(KEPT);
    let reply = site.raw(&format!("{request}\u{1}\u{2}garbage\r\n\r\n{request}"));
    let replies = ["HTTP/1.1 200", "HTTP/1.1 400"].map(|status| reply.matches(status).count());
    assert_eq!(replies, [1, 1], "{reply}");
}

/// One byte at a time never lets an idle timeout strike; only a deadline ends it.
#[test]
fn slow_head_ends_in_408() {
    let site = Site::with(|config| config.limits.timeouts.head = ms(300));
    let mut stream = site.connect();
    let mut writer = stream.try_clone().unwrap();
    let started = Instant::now();
    let drip = std::thread::spawn(move || {
        for byte in "GET / HTTP/1.1\r\nHost: h\r\n".bytes().cycle() {
            if writer.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(ms(20));
        }
    });
    let mut reply = String::new();
    // The last drops may meet a closed connection and reset it after the reply.
    let _ = stream.read_to_string(&mut reply);
    assert!(reply.starts_with("HTTP/1.1 408"), "{reply}");
    assert!(started.elapsed() >= ms(300));
    stream.shutdown(Shutdown::Both).ok();
    drip.join().unwrap();
}

#[test]
fn silent_connection_is_closed_without_a_word() {
    let site = Site::with(|config| config.limits.timeouts.idle = ms(200));
    site.write("f", b"x");
    for (request, reply) in [(&b""[..], ""), (KEPT, "\r\n\r\nx")] {
        let started = Instant::now();
        let mut stream = site.connect();
        stream.write_all(request).unwrap();
        let got = to_the_end(stream);
        assert!(got.ends_with(reply) && got.is_empty() == reply.is_empty(), "{got}");
        assert!(started.elapsed() >= ms(200));
    }
}

/// The server closes a stopped reply: what is on the way by then is less than the file. A slow
/// reader gets all of it.
#[test]
fn reader_that_stops_is_cut_and_a_slow_one_is_not() {
    let site = watched(|config| config.limits.timeouts.stall = ms(1500));
    let content = noise(24 << 20);
    site.write("f", &content);
    let mut stopped = site.begin("/f");
    let mut slow = site.begin("/f");
    let (mut got, mut part) = (Vec::new(), vec![0; 1 << 20]);
    while let length @ 1.. = slow.read(&mut part).unwrap() {
        got.extend_from_slice(&part[..length]);
        // Far slower than the server sends, for longer than the stall time.
        if got.len() < 16 << 20 {
            std::thread::sleep(ms(110));
        }
    }
    assert!(got.ends_with(&content));
    wait_for(|| value(&site, "longhaul_connections") == 0.0);
    let mut got = Vec::new();
    let end = stopped.read_to_end(&mut got);
    assert!(end.is_err() || got.len() < content.len(), "the whole file came to a reader that had stopped");
}

#[test]
fn thousands_of_idle_connections_cost_no_threads() {
    const COUNT: usize = 3000;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 2 * COUNT as u64 + 200) {
        return skipped("the limit of open files is too low");
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let site = Site::start();
    site.write("f", b"x");
    assert_eq!(site.get("/f", &[]).status, 200);
    let before = threads();
    let mut idle: Vec<Talk> = (0..COUNT).map(|_| Talk::to(&site)).collect();
    for talk in &mut idle {
        talk.send("HEAD /f HTTP/1.1\r\nHost: h\r\n\r\n", b"");
    }
    for talk in &mut idle {
        assert_eq!(talk.answer_head().status, 200);
    }
    // The pool that opens files may grow to its bound, and other tests run beside this one.
    assert!(threads() < before + COUNT as u64 / 3);
    assert_eq!(site.get("/f", &[]).status, 200);
    for talk in idle.iter_mut().step_by(97) {
        talk.fetch("/f");
    }
}

fn threads() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    text.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap().trim().parse().unwrap()
}

#[test]
fn at_the_limit_the_longest_idle_makes_room() {
    let site = watched(|config| config.limits.connections.open = 2);
    site.write("f", b"x");
    let [mut first, mut second] = [Talk::to(&site), Talk::to(&site)];
    wait_for(|| value(&site, "longhaul_connections") == 2.0);
    first.fetch("/f");
    assert_eq!(site.get("/f", &[]).status, 200);
    assert_eq!(second.answer_head().status, 503);
    // No more room was made than needed.
    first.fetch("/f");
}

#[test]
fn every_request_at_the_limit_is_answered() {
    let site =
        Site::with(|config| (config.limits.connections.open, config.limits.connections.waiting) = (2, 1));
    site.write("f", b"x");
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = site.connect();
            // Refused, the connection may be closed by now.
            let _ = stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            stream
        })
        .collect();
    for stream in asked {
        let status = Answer::read(&to_the_end(stream)).status;
        assert!(matches!(status, 200 | 503), "{status}");
    }
}

#[test]
fn fast_reply_keeps_its_slot_until_it_ends() {
    let site = Site::with(|config| config.limits.connections.open = 2);
    let content = noise(24 << 20);
    site.write("f", &content);
    site.write("g", b"x");
    let mut busy = [(); 2].map(|()| {
        let mut stream = site.connect();
        stream.write_all(KEPT).unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        stream
    });
    let mut third = site.connect();
    third.write_all(b"GET /g HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    third.set_read_timeout(Some(ms(300))).unwrap();
    assert!(third.read(&mut [0; 100]).is_err(), "a third connection was served beyond the limit of two");
    // Done with its reply, the first waits for a request, and so makes room.
    let mut got = Vec::new();
    busy[0].read_to_end(&mut got).unwrap();
    assert!(got.ends_with(&content));
    third.set_read_timeout(Some(ms(40_000))).unwrap();
    assert!(to_the_end(third).starts_with("HTTP/1.1 200"));
}

#[test]
fn reader_far_too_slow_is_cut() {
    let site = Site::with(|config| {
        config.limits.timeouts.stall = ms(200);
        config.limits.timeouts.slowest = Rate::bits_per_sec(800_000_000);
    });
    let content = noise(48 << 20);
    site.write("f", &content);
    let started = Instant::now();
    let mut slow = site.begin("/f");
    let (mut part, mut got) = (vec![0; 256 << 10], 0);
    while let Ok(length @ 1..) = slow.read(&mut part) {
        got += length;
        std::thread::sleep(ms(20));
    }
    assert!(got < content.len(), "all came to a reader at a tenth of the least rate");
    assert!(started.elapsed() >= ms(600), "it was cut before its rate was known");
}

#[test]
fn connection_that_gets_no_slot_is_told_so() {
    let site = Site::with(|config| {
        config.limits.connections.open = 1;
        config.limits.connections.per_client = 1;
    });
    site.write("f", &noise(32 << 20));
    let _replying = site.begin("/f");
    let _waiting: Vec<TcpStream> = (0..8).map(|_| site.connect()).collect();
    let mut refused = site.connect();
    refused.write_all(KEPT).unwrap();
    let text = to_the_end(refused);
    let answer = Answer::read(&text);
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{text}");
    assert_eq!(Some(answer.body.len().to_string().as_str()), answer.header("content-length"));
}
