//! How connections are kept, shared, limited and ended.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::site::{Answer, Site, noise};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Reads until the peer closes; gives what came and how long it took.
fn to_the_end(mut stream: TcpStream) -> (String, Duration) {
    let started = Instant::now();
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    (String::from_utf8_lossy(&all).into_owned(), started.elapsed())
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = Site::start();
    let content = noise(1 << 20);
    site.write("f", &content);
    let block = 64 << 10;
    let requests: String = (0..16)
        .map(|i| {
            format!(
                "GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes={}-{}\r\n\r\n",
                i * block,
                (i + 1) * block - 1
            )
        })
        .collect();
    let mut stream = site.connect();
    // Cut anywhere: a head that is split must wait for its other half.
    let (first, rest) = requests.as_bytes().split_at(500);
    stream.write_all(first).unwrap();
    std::thread::sleep(ms(20));
    stream.write_all(rest).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = Vec::new();
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
fn versions_and_the_connection_header_decide_whether_it_is_kept() {
    let site = Site::start();
    site.write("f", b"x");
    let twice = |head: &str| site.raw(&head.repeat(2)).matches("HTTP/1.1 200").count();
    assert_eq!(twice("GET /f HTTP/1.1\r\nHost: h\r\n\r\n"), 2);
    assert_eq!(twice("\r\nGET /f HTTP/1.1\r\nHost: h\r\n\r\n"), 2);
    assert_eq!(twice("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), 1);
    assert_eq!(twice("GET /f HTTP/1.0\r\n\r\n"), 1);
    assert_eq!(twice("GET /f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 2);
}

#[test]
fn what_is_not_served_is_refused_clearly() {
    let site = Site::start();
    site.write("f", b"x");
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(9000));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a: b\r\n".repeat(200));
    let big = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "b".repeat(1 << 20));
    for (text, status) in [
        ("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nGET ", 405),
        ("POST /f HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 405),
        ("DELETE /f HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("GET /f HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", 400),
        ("GET /f HTTP/1.1\r\n\r\n", 400),
        ("GET /f HTTP/3.0\r\nHost: h\r\n\r\n", 505),
        ("\u{16}\u{3}\u{1}garbage\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 204),
        (&long, 414),
        (&many, 431),
        (&big, 431),
    ] {
        let answer = Answer::read(&site.raw(text));
        assert_eq!(answer.status, status, "{}", &text[..text.len().min(50)]);
        if matches!(status, 405 | 204) {
            assert_eq!(answer.header("Allow"), Some("GET, HEAD, OPTIONS"));
        }
        // What follows a refused body is never read as a request.
        assert!(!answer.body.contains("\r\nDate:"), "{}", answer.body);
    }
    // A body larger than any buffer still meets its answer, not a reset.
    let huge = format!("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n{}", "x".repeat(900_000));
    assert_eq!(Answer::read(&site.raw(&huge)).status, 405);
}

#[test]
fn a_slow_head_ends_in_408() {
    let site = Site::with(|config| config.limits.head = ms(300));
    let mut stream = site.connect();
    let mut writer = stream.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        // One byte at a time never lets an idle timeout strike; only a deadline ends it.
        for byte in "GET / HTTP/1.1\r\nHost: h\r\n".bytes().cycle() {
            if writer.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(ms(20));
        }
    });
    let started = Instant::now();
    let mut reply = String::new();
    // The last drops may meet a closed connection and reset it after the reply.
    let _ = stream.read_to_string(&mut reply);
    assert!(reply.starts_with("HTTP/1.1 408"), "{reply}");
    assert!(started.elapsed() > ms(250));
    stream.shutdown(std::net::Shutdown::Both).ok();
    drip.join().unwrap();
}

#[test]
fn a_silent_connection_is_closed_without_a_word() {
    let site = Site::with(|config| config.limits.idle = ms(200));
    site.write("f", b"x");
    let (reply, took) = to_the_end(site.connect());
    assert_eq!(reply, "");
    assert!(took > ms(150) && took < ms(10_000), "{took:?}");
    let mut kept = site.connect();
    kept.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let (reply, took) = to_the_end(kept);
    assert!(reply.ends_with("\r\n\r\nx") && took > ms(150) && took < ms(10_000), "{took:?}");
}

#[test]
fn a_reader_that_stops_is_cut_and_a_slow_one_is_not() {
    let site = Site::with(|config| config.limits.stall = ms(500));
    let content = noise(24 << 20);
    site.write("f", &content);
    let request = b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

    let mut stopped = site.connect();
    stopped.write_all(request).unwrap();
    std::thread::sleep(ms(2000));
    let mut got = Vec::new();
    let end = stopped.read_to_end(&mut got);
    assert!(end.is_err() || got.len() < content.len(), "the whole file came to a reader that had stopped");

    let mut slow = site.connect();
    slow.write_all(request).unwrap();
    let mut got = Vec::new();
    let mut part = vec![0; 1 << 20];
    loop {
        match slow.read(&mut part).unwrap() {
            0 => break,
            length => got.extend_from_slice(&part[..length]),
        }
        // Far slower than the server sends, never a whole stall time without a byte.
        if got.len() < 16 << 20 {
            std::thread::sleep(ms(60));
        }
    }
    let start = got.len() - content.len();
    assert!(got[start..] == content);
}

#[test]
fn a_file_rewritten_while_it_is_sent_ends_short() {
    let site = Site::start();
    let content = noise(24 << 20);
    let path = site.write("f", &content);
    let mut stream = site.connect();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    let mut changed = std::fs::File::options().write(true).open(path).unwrap();
    changed.write_all(&noise(24 << 20)[1..]).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got.len() < content.len(), "two versions were sent as one");
}

#[test]
fn thousands_of_idle_connections_cost_no_threads() {
    const COUNT: usize = 3000;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 2 * COUNT as u64 + 200) {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the limit of open files is too low");
        println!("skipped: the limit of open files is too low");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let site = Site::start();
    site.write("f", b"x");
    assert_eq!(site.get("/f", &[]).status, 200);
    let (threads, memory) = (status("Threads:"), status("VmRSS:"));
    let mut idle: Vec<TcpStream> = (0..COUNT).map(|_| site.connect()).collect();
    for stream in &mut idle {
        stream.write_all(b"HEAD /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    }
    for stream in &mut idle {
        assert!(stream.read(&mut [0; 2000]).unwrap() > 100);
    }
    println!(
        "{COUNT} idle connections: {} KiB each, {} more threads",
        status("VmRSS:").saturating_sub(memory) / COUNT as u64,
        status("Threads:").saturating_sub(threads)
    );
    // The pool that opens files may grow to its bound, and other tests run beside this one.
    assert!(status("Threads:") < threads + 300);
    assert_eq!(site.get("/f", &[]).status, 200);
    for stream in idle.iter_mut().step_by(97) {
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 2000]).unwrap() > 100);
    }
}

/// Reads a number from /proc/self/status.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

const KEPT: &[u8] = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn at_the_limit_the_longest_idle_makes_room() {
    let site = Site::with(|config| config.limits.connections = 2);
    site.write("f", b"x");
    let mut first = site.connect();
    std::thread::sleep(ms(50));
    let mut second = site.connect();
    std::thread::sleep(ms(50));
    // Now the second is the one that has waited longer.
    first.write_all(KEPT).unwrap();
    assert!(first.read(&mut [0; 1000]).unwrap() > 0);
    assert_eq!(site.get("/f", &[]).status, 200);
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    first.write_all(KEPT).unwrap();
    assert!(first.read(&mut [0; 1000]).unwrap() > 0, "more room was made than needed");
}

#[test]
fn fast_reply_keeps_its_slot_until_it_ends() {
    let site = Site::with(|config| config.limits.connections = 2);
    let content = noise(24 << 20);
    site.write("f", &content);
    site.write("g", b"x");
    let mut busy: Vec<TcpStream> = (0..2).map(|_| site.connect()).collect();
    for stream in &mut busy {
        stream.write_all(KEPT).unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
    }
    let mut third = site.connect();
    third.write_all(b"GET /g HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    third.set_read_timeout(Some(ms(300))).unwrap();
    assert!(third.read(&mut [0; 100]).is_err(), "a third connection was served beyond the limit of two");
    // Done with its reply, the first waits for a request, and so makes room.
    let mut got = Vec::new();
    busy[0].read_to_end(&mut got).unwrap();
    assert!(got.ends_with(&content));
    third.set_read_timeout(Some(ms(5000))).unwrap();
    assert!(to_the_end(third).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn a_reader_far_too_slow_is_cut() {
    let site = Site::with(|config| {
        config.limits.stall = ms(200);
        config.limits.slowest = Rate::bits_per_sec(800_000_000);
    });
    let content = noise(48 << 20);
    site.write("f", &content);
    let mut slow = site.connect();
    slow.write_all(KEPT).unwrap();
    let (mut part, mut got, started) = (vec![0; 256 << 10], 0, Instant::now());
    while let Ok(length @ 1..) = slow.read(&mut part) {
        got += length;
        std::thread::sleep(ms(20));
    }
    assert!(got < content.len(), "all came to a reader at a tenth of the least rate");
    assert!(started.elapsed() > ms(600), "it was cut before its rate could be told");
}

#[test]
fn connection_that_gets_no_slot_is_told_so() {
    let site = Site::with(|config| {
        config.limits.connections = 1;
        config.limits.per_client = 1;
    });
    site.write("f", &noise(32 << 20));
    let mut replying = site.connect();
    replying.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    replying.read_exact(&mut [0; 1]).unwrap();
    let _waiting: Vec<TcpStream> = (0..8).map(|_| site.connect()).collect();
    let mut refused = site.connect();
    refused.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let (text, took) = to_the_end(refused);
    let answer = Answer::read(&text);
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{text}");
    assert_eq!(Some(answer.body.len().to_string().as_str()), answer.header("content-length"));
    assert!(took < ms(5000), "it waits for no slot: {took:?}");
}
