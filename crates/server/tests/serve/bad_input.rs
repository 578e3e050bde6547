//! Requests that no client of ours sends: each is refused, and the server goes on.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::site::{Answer, Site};
use crate::tls;

#[test]
fn odd_methods_and_header_names_are_refused() {
    let site = Site::start();
    site.write("f", b"x");
    for (text, status) in [
        ("PROPFIND /f HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("get /f HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("G\u{e4}T /f HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\nX\u{e4}: y\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\nX Y: z\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\nX\u{0}: y\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\n: y\r\n\r\n", 400),
    ] {
        assert_eq!(Answer::read(&site.raw(text)).status, status, "{text:?}");
    }
    assert_eq!(site.get("/f", &[]).status, 200);
}

#[test]
fn garbage_behind_a_request_ends_the_connection_after_its_reply() {
    let site = Site::start();
    site.write("f", b"x");
    let reply = site
        .raw("GET /f HTTP/1.1\r\nHost: h\r\n\r\n\u{1}\u{2}garbage\r\n\r\nGET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(
        (reply.matches("HTTP/1.1 200").count(), reply.matches("HTTP/1.1 400").count()),
        (1, 1),
        "{reply}"
    );
}

#[test]
fn slow_tls_handshake_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let tls = tls::files(dir.path());
    let site = Site::with(|config| {
        config.tls = Some(tls);
        config.limits.head = Duration::from_millis(300);
    });
    let mut stream = site.connect();
    // The first bytes of a ClientHello.
    stream.write_all(&[22, 3, 1, 2, 0]).unwrap();
    let started = Instant::now();
    let ended = stream.read(&mut [0; 10]);
    assert!(matches!(ended, Ok(0)) || ended.is_err());
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}
