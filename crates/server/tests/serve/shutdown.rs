//! Stopping: idle connections go, replies under way finish, the impatient are served too.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_server::{Config, ServeError, Server, ServerOutcome};

use crate::site::{Site, noise};

const REQUEST: &[u8] = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n";

/// A server with a 24 MiB file, and a client that has read its first bytes.
fn under_way(grace: Duration) -> (Site, Vec<u8>, TcpStream) {
    let site = Site::with(|config| config.limits.grace = grace);
    let content = noise(24 << 20);
    site.write("f", &content);
    let mut stream = site.connect();
    stream.write_all(REQUEST).unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    (site, content, stream)
}

#[test]
fn a_reply_under_way_is_finished() {
    let (site, content, mut stream) = under_way(Duration::from_secs(20));
    let idle = site.connect();
    std::thread::sleep(Duration::from_millis(50));
    site.stopper.finish();
    std::thread::sleep(Duration::from_millis(100));
    assert!(TcpStream::connect(site.address).is_err(), "a connection was accepted after the end began");
    let started = Instant::now();
    assert_eq!((&idle).read(&mut [0; 1]).unwrap(), 0);
    assert!(started.elapsed() < Duration::from_secs(1));
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got.ends_with(&content));
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
}

#[test]
fn the_grace_has_an_end() {
    let (site, content, mut stream) = under_way(Duration::from_millis(300));
    let started = Instant::now();
    site.stopper.finish();
    assert_eq!(site.ended(), ServerOutcome { cut: 1 });
    assert!(started.elapsed() > Duration::from_millis(250) && started.elapsed() < Duration::from_secs(5));
    let mut got = Vec::new();
    let end = stream.read_to_end(&mut got);
    assert!(end.is_err() || got.len() < content.len());
}

#[test]
fn a_second_word_ends_at_once() {
    let (site, _content, _stream) = under_way(Duration::from_secs(60));
    let stopper = site.stopper.clone();
    stopper.finish();
    std::thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    stopper.end();
    // Said too late, it must not bring the server back.
    stopper.finish();
    assert_eq!(site.ended(), ServerOutcome { cut: 1 });
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let site = Site::start();
    let any = "127.0.0.1:0".parse().unwrap();
    let file = site.write("f", b"");
    let why = |config: Config| Server::bind(config).err().unwrap();
    for root in [site.dir.path().join("missing"), file] {
        let error = why(Config::new(&root, any));
        assert!(matches!(error, ServeError::Root { .. }), "{error}");
        assert!(error.to_string().contains(root.to_str().unwrap()));
    }
    let error = why(Config::new(site.dir.path(), site.address));
    assert!(
        matches!(error, ServeError::Listen { .. }) && error.to_string().contains(&site.address.to_string())
    );
    let mut config = Config::new(site.dir.path(), any);
    config.congestion = Some("no-such-control".to_owned());
    let error = why(config).to_string();
    assert!(error.contains("no-such-control") && error.contains("cubic"), "{error}");
}
