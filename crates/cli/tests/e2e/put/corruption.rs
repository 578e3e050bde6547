//! Bytes that change in transit to `longhaul serve --writable`: they are detected, and only they
//! are sent again.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::resuming::{SLOWLY, again, synced};
use super::{MIB, is_verified, moved, put_to, requests_of, to};
use crate::support::{HttpRequest, RelayAction, Server, Writable, content, relay_pieces, same};

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
    let left: Vec<_> = places.iter().map(|at| (*at, AtomicUsize::new(times))).collect();
    let forward = |request: &HttpRequest, _: &mut _| RelayAction::Head(request.head.clone());
    relay_pieces(site.address(), forward, move |request, offset, piece| {
        let at = carried(request).start + offset;
        let here = at..at + piece.len();
        for (place, left) in left.iter().filter(|(place, _)| here.contains(place)) {
            let less = |left: usize| left.checked_sub(1);
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
                piece[place - at] ^= 4;
            }
        }
    })
}

fn sent_again(server: &Server) -> Vec<Range<usize>> {
    let parts: Vec<_> = requests_of(server, "PATCH").iter().map(carried).collect();
    let before = |at: usize| parts[..at].iter().any(|part| part.contains(&parts[at].start));
    let again = (0..parts.len()).filter(|at| !parts[*at].is_empty() && before(*at));
    let mut again: Vec<_> = again.map(|at| parts[at].clone()).collect();
    again.sort_by_key(|part| part.start);
    again
}

#[test]
fn only_the_wrong_pieces_are_sent_again() {
    let site = Writable::start();
    let bytes = content(SIZE, 1);
    for (path, name, options) in [
        ("/f", "f", &["--streams", "1"][..]),
        ("/f", "f", &["--streams", "3"]),
        ("/f", "f", &["--verify", "disk"]),
        // No metalink can hold these names.
        ("/a%5Cb", "a\\b", &[]),
        ("/a%0Ab", "a\nb", &[]),
    ] {
        // In the third and in the last MiB.
        let server = flipping(&site, &[2 * MIB + 5, SIZE - 1], 1);
        let ended = put_to(&server.url(path), &site, &bytes).args(options).run().ok();
        assert!(is_verified(&ended), "{ended:?}");
        same(site.path(name), &bytes);
        assert_eq!(site.names(), [name]);
        assert_eq!(sent_again(&server), [2 * MIB..3 * MIB, 20 * MIB..SIZE], "{path} {options:?}");
        let named = format!("bytes {}..{}, {}..{SIZE} have other digests", 2 * MIB, 3 * MIB, 20 * MIB);
        assert!(ended.json().iter().any(|line| line.to_string().contains(&named)), "{ended:?}");
        fs::remove_file(site.path(name)).unwrap();
    }
}

#[test]
fn bytes_that_change_each_time_end_the_put_which_names_them() {
    let site = Writable::start();
    let bytes = content(SIZE, 2);
    let server = flipping(&site, &[5 * MIB], usize::MAX);
    let run = put_to(&server.url("/f"), &site, &bytes);
    let named = format!("bytes {}..{}", 5 * MIB, 6 * MIB);
    run.run().fails(65, &[&named, "4 attempts", "run again"]);
    assert_eq!(sent_again(&server), vec![5 * MIB..6 * MIB; 4]);
    assert!(!site.path("f").exists());
    // The next run, without corruption, sends only these pieces.
    let ended = again(run, &site).run().ok();
    assert!(moved(&ended) <= MIB as u64 + 1000, "{ended:?}");
    assert!(is_verified(&ended));
    same(site.path("f"), &bytes);
}

#[test]
fn stale_bytes_of_an_earlier_source_are_detected() {
    let site = Writable::start();
    let mut changed = content(SIZE, 3);
    let run = to(&site, "/f", &changed).args(SLOWLY).args(["--streams", "1"]);
    let (path, mut running) = (run.path("f"), run.start());
    synced(&mut running, &site);
    drop(running);
    // Rewritten, with the old modification time.
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    changed[MIB / 2] ^= 1;
    fs::write(&path, &changed).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    again(run, &site).run().ok();
    same(site.path("f"), &changed);
}
