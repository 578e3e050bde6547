//! Bytes that change in transit to `longhaul serve --writable`: they are detected, and only they are sent again.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Ended, HttpRequest, Put, Server, Writable, content, put, same};

const MIB: usize = 1 << 20;
const SIZE: usize = 20 * MIB + 77;

/// Returns the range of the file that follows a head.
fn carried(request: &HttpRequest) -> Range<usize> {
    let length: usize = request.field("content-length").map_or(0, |length| length.parse().unwrap());
    let range =
        request.field("content-range").and_then(|range| range.strip_prefix("bytes ")?.split_once('-'));
    let start = range.map(|(start, _)| start).or_else(|| request.field("upload-offset"));
    let start = start.map_or(0, |start| start.parse().unwrap());
    start..start + length
}

/// A relay to `site` that flips a bit of the byte at each of `places`, `times` times.
fn flipping(site: &Writable, places: &'static [usize], times: usize) -> Server {
    let to = site.address();
    let left: Arc<Vec<_>> = Arc::new(places.iter().map(|at| (*at, AtomicUsize::new(times))).collect());
    Server::new(move |peer| {
        let mut server = TcpStream::connect(to).unwrap();
        let (mut answers, mut client) = (server.try_clone().unwrap(), peer.stream.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            let _ = std::io::copy(&mut answers, &mut client);
            let _ = client.shutdown(Shutdown::Both);
        });
        while let Some(request) = peer.read_request() {
            if server.write_all(request.head.as_bytes()).is_err() {
                break;
            }
            let carried = carried(&request);
            let (mut at, mut buffer) = (carried.start, vec![0; 64 << 10]);
            while at < carried.end {
                let most = buffer.len().min(carried.end - at);
                let Ok(n @ 1..) = (&peer.stream).read(&mut buffer[..most]) else { break };
                for (place, left) in left.iter() {
                    let less = |left: usize| left.checked_sub(1);
                    let flips = (at..at + n).contains(place)
                        && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
                    if flips {
                        buffer[place - at] ^= 4;
                    }
                }
                if server.write_all(&buffer[..n]).is_err() {
                    break;
                }
                at += n;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
        back.join().unwrap();
    })
}

fn past(server: &Server, site: &Writable, bytes: &[u8]) -> Put {
    let run = put().args(["--json", "--token"]).args([site.token()]).args(["f", &server.url("/f")]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

/// Returns the ranges that were sent more than once.
fn sent_again(server: &Server) -> Vec<Range<usize>> {
    let asks = server.requests();
    let parts: Vec<_> =
        asks.iter().filter(|request| request.head.starts_with("PATCH")).map(carried).collect();
    let before = |at: usize| parts[..at].iter().any(|part| part.contains(&parts[at].start));
    let mut again: Vec<_> = (0..parts.len())
        .filter(|at| !parts[*at].is_empty() && before(*at))
        .map(|at| parts[at].clone())
        .collect();
    again.sort_by_key(|part| part.start);
    again
}

fn is_verified(ended: &Ended) -> bool {
    ended.done()["digest"].as_str().is_some_and(|digest| digest.starts_with("blake3:"))
}

#[test]
fn only_the_wrong_pieces_are_sent_again() {
    let site = Writable::start();
    let bytes = content(SIZE, 1);
    for options in [&["--streams", "1"][..], &["--streams", "3"], &["--verify", "disk"]] {
        // In the third and in the last MiB.
        let server = flipping(&site, &[2 * MIB + 5, SIZE - 1], 1);
        let ended = past(&server, &site, &bytes).args(options).run().ok();
        assert!(is_verified(&ended), "{ended:?}");
        same(site.path("f"), &bytes);
        assert_eq!(site.names(), ["f"]);
        assert_eq!(sent_again(&server), [2 * MIB..3 * MIB, 20 * MIB..SIZE], "{options:?}");
        let named = format!("bytes {}..{}, {}..{SIZE} have other digests", 2 * MIB, 3 * MIB, 20 * MIB);
        let warned = |line: &serde_json::Value| line.to_string().contains(&named);
        assert!(ended.json().iter().any(warned), "{ended:?}");
        fs::remove_file(site.path("f")).unwrap();
    }
}

#[test]
fn names_that_no_metalink_can_hold_are_repaired_as_others() {
    let site = Writable::start();
    let bytes = content(SIZE, 4);
    for (written, name) in [("a%5Cb", "a\\b"), ("a%0Ab", "a\nb")] {
        let server = flipping(&site, &[2 * MIB + 5], 1);
        let run = put().args(["--json", "--token"]).args([site.token()]);
        let run = run.args(["f", &server.url(&format!("/{written}"))]);
        fs::write(run.path("f"), &bytes).unwrap();
        let ended = run.run().ok();
        assert!(is_verified(&ended), "{ended:?}");
        same(site.path(name), &bytes);
        let again = sent_again(&server);
        assert!(again.len() == 1 && again[0] == (2 * MIB..3 * MIB), "{again:?}");
    }
}

#[test]
fn bytes_that_change_each_time_end_the_put_which_names_them() {
    let site = Writable::start();
    let bytes = content(SIZE, 2);
    let server = flipping(&site, &[5 * MIB], usize::MAX);
    let run = past(&server, &site, &bytes);
    let named = format!("bytes {}..{}", 5 * MIB, 6 * MIB);
    run.run().fails(65, &[&named, "4 attempts", "run again"]);
    assert_eq!(sent_again(&server), vec![5 * MIB..6 * MIB; 4]);
    assert!(!site.path("f").exists());
    // The next run, without corruption, sends only these pieces.
    let again = run.again(["--json", "--token"]).args([site.token()]).args(["f", &site.url("/f")]);
    let ended = again.run().ok();
    let moved = ended.json().iter().rfind(|line| line["event"] == "progress").unwrap()["received"].as_u64();
    assert!(moved <= Some(MIB as u64 + 1000), "{moved:?}");
    assert!(is_verified(&ended));
    same(site.path("f"), &bytes);
}

#[test]
fn stale_bytes_of_an_earlier_source_are_detected() {
    let site = Writable::start();
    let bytes = content(SIZE, 3);
    let run = past(&flipping(&site, &[], 0), &site, &bytes).args(["--limit", "12MB/s"]);
    let running = run.start();
    std::thread::sleep(std::time::Duration::from_millis(1300));
    drop(running);
    // Rewritten, with the old modification time.
    let (path, mut changed) = (run.path("f"), bytes.clone());
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    changed[MIB / 2] ^= 1;
    fs::write(&path, &changed).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    let again = run.again(["--json", "--token"]).args([site.token()]).args(["f", &site.url("/f")]);
    again.run().ok();
    same(site.path("f"), &changed);
}
