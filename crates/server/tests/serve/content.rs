//! Large files arrive whole, paced if asked, and never padded.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use longhaul_core::pace::Pace;
use longhaul_core::units::Rate;

use crate::site::{Site, curl, noise, same};

#[test]
fn a_large_file_arrives_whole_and_by_ranges() {
    let site = Site::start();
    let file = site.write("big", &noise((64 << 20) + 12_345));
    let out = site.dir.path().join("out");
    let url = site.url("/big");
    let Some((code, _)) = curl(&["-o", out.to_str().unwrap(), &url]) else { return };
    assert!(code == 0 && same(&file, &out));
    let mut joined = Vec::new();
    let step = 20 << 20;
    for start in (0..(64 << 20) + 12_345).step_by(step) {
        let range = format!("{start}-{}", start + step - 1);
        let (code, part) = curl(&["-r", &range, &url]).unwrap();
        assert_eq!(code, 0);
        joined.extend(part);
    }
    assert!(joined == std::fs::read(&file).unwrap());
}

#[test]
fn a_file_that_shrinks_ends_the_connection() {
    let site = Site::start();
    let content = noise(64 << 20);
    let path = site.write("f", &content);
    let mut stream = site.connect();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut got = vec![0; 1 << 20];
    stream.read_exact(&mut got).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(40 << 20).unwrap();
    stream.read_to_end(&mut got).unwrap();
    let start = got.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let body = &got[start..];
    assert!(body.len() <= 40 << 20, "{} bytes came of a file that was cut to 40 MiB", body.len());
    assert!(body == &content[..body.len()]);
    // The server goes on.
    assert_eq!(site.get("/f", &["Range: bytes=0-0"]).status, 206);
}

#[test]
fn a_paced_connection_keeps_its_rate() {
    let rate = Rate::bits_per_sec(80_000_000);
    let site = Site::with(|config| config.pace = Pace::Rate(rate));
    let content = noise(10_000_000);
    site.write("f", &content);
    let mut stream = site.connect();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let started = Instant::now();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    let took = started.elapsed();
    println!("10 MB paced to {rate}: {took:?}");
    assert!(got.ends_with(&content[9_000_000..]));
    // The kernel paces headers too and starts with a burst: 1 s is the arithmetic, not the law.
    assert!(took > Duration::from_millis(850) && took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn many_clients_at_once_share_the_server() {
    let site = Site::start();
    let content = noise(8 << 20);
    site.write("f", &content);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut stream = site.connect();
                stream.write_all(b"GET /f HTTP/1.0\r\n\r\n").unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert!(got[got.len() - content.len()..] == content);
            });
        }
    });
}
