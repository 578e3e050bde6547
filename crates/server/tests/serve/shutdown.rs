//! Stopping: idle connections close, replies under way finish within the grace.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_server::ServerOutcome;

use crate::site::{Site, noise, wait_for};
use crate::uploads::Talk;

/// A server with a 24 MiB file, and a client that has read its first bytes.
fn under_way(grace: Duration) -> (Site, Vec<u8>, TcpStream) {
    let site = Site::with(|config| config.limits.timeouts.grace = grace);
    let content = noise(24 << 20);
    site.write("f", &content);
    let stream = site.begin("/f");
    (site, content, stream)
}

#[test]
fn reply_under_way_is_finished_and_idle_connections_are_closed() {
    let (site, content, mut stream) = under_way(Duration::from_secs(60));
    let mut idle = Talk::to(&site);
    assert_eq!(idle.ask("HEAD /f HTTP/1.1\r\nHost: h\r\n\r\n", b"").status, 200);
    site.stopper.finish();
    assert!(matches!(idle.0.read(&mut [0; 1]), Ok(0)), "the idle connection is kept");
    let is_refusal = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
    wait_for(|| TcpStream::connect(site.address).is_err_and(is_refusal));
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got.ends_with(&content));
    assert_eq!(site.ended(), ServerOutcome { cut: 0 });
}

#[test]
fn reply_is_cut_at_the_end_of_the_grace_or_by_a_second_word() {
    let short = Duration::from_millis(300);
    for grace in [short, Duration::from_secs(100)] {
        let (site, content, mut stream) = under_way(grace);
        let started = Instant::now();
        site.stopper.finish();
        if grace > short {
            site.stopper.end();
            // Too late: it must not bring the server back.
            site.stopper.finish();
        }
        assert_eq!(site.ended(), ServerOutcome { cut: 1 });
        assert!(started.elapsed() < Duration::from_secs(60) && (grace > short || started.elapsed() >= short));
        let mut got = Vec::new();
        assert!(stream.read_to_end(&mut got).is_err() || got.len() < content.len());
    }
}
