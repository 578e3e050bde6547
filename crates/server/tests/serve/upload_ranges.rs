//! Ranges of one upload over several connections in any order, and their errors.

use std::io::Write;
use std::ops::Range;
use std::time::Duration;

use longhaul_core::proto::http::UploadId;

use crate::site::{Answer, Site, noise, wait_for};
use crate::uploads::{
    ID, Talk, blake3_field, content, head, names, patch, put, range, resource, status, with_field, writable,
};

const MIB: usize = 1 << 20;
const SIZE: usize = 12 * MIB;
const OTHER: UploadId = UploadId::new([0x5a; 16]);

/// Asks for a digest in passing, on a connection of its own.
fn hashed(head: &str) -> String {
    with_field(head, "Connection: close\r\nWant-Repr-Digest: blake3=10")
}

/// Uploads a range of `/f`.
fn add(site: &Site, file: &[u8], bytes: Range<usize>) -> Answer {
    Talk::to(site).ask(&hashed(&range(&resource("f", ID), bytes.clone(), SIZE)), &file[bytes])
}

fn complete(site: &Site, file: &[u8]) -> Answer {
    let last = with_field(&patch(&resource("f", ID), SIZE, 0, SIZE, true), &blake3_field(file));
    Talk::to(site).ask(&hashed(&last), b"")
}

fn held(site: &Site) -> String {
    let answer = Talk::to(site).ask(&head("HEAD", &resource("f", ID), &[]), b"");
    assert_eq!(answer.status, 204, "{answer:?}");
    answer.header("upload-ranges").unwrap().to_owned()
}

/// Begins a range: the server has answered 100 and received the first `sent` bytes.
fn begin(site: &Site, file: &[u8], bytes: Range<usize>, sent: usize) -> Talk {
    let mut talk = Talk::to(site);
    let head = with_field(&range(&resource("f", ID), bytes.clone(), SIZE), "Expect: 100-continue");
    assert_eq!(talk.ask(&hashed(&head), b"").status, 100);
    talk.send("", &file[bytes.start..bytes.start + sent]);
    talk
}

#[test]
fn ranges_are_offered_and_complete_an_upload_in_any_order() {
    let (site, file) = (writable(), noise(SIZE));
    let options = site.ask("OPTIONS", "/f", &[]);
    assert_eq!(options.header("upload-limit"), Some("concurrent-ranges=128"), "{options:?}");
    for bytes in [8 * MIB..SIZE, MIB + 5..8 * MIB] {
        assert_eq!(add(&site, &file, bytes).status, 202);
    }
    assert_eq!(held(&site), format!("bytes={}-{}", MIB + 5, SIZE - 1));
    let early = complete(&site, &file);
    assert_eq!((early.status, early.header("upload-offset")), (409, Some("0")));
    assert!(early.body.contains(&format!("the upload lacks bytes 0..{}\n", MIB + 5)), "{early:?}");
    assert!(early.header("upload-ranges").unwrap().starts_with("bytes="), "{early:?}");
    assert_eq!(add(&site, &file, 0..MIB + 5).status, 202);
    assert_eq!(complete(&site, &file).status, 201);
    assert!(content(&site, "f") == file && names(&site) == ["f"]);
}

#[test]
fn overlapping_range_is_refused_while_the_other_arrives_and_taken_once_that_is_silent() {
    let (site, file) = (writable(), noise(SIZE));
    let mut first = begin(&site, &file, 0..8 * MIB, 2 * MIB);
    let refused = add(&site, &file, 4 * MIB..SIZE);
    let reason = "this range of it, is being written";
    assert!(refused.status == 423 && refused.body.contains(reason), "{refused:?}");
    // Other ranges are still accepted.
    assert_eq!(add(&site, &file, 8 * MIB..SIZE).status, 202);
    assert_eq!(first.ask("", &file[2 * MIB..8 * MIB]).status, 202);
    assert_eq!(held(&site), format!("bytes=0-{}", SIZE - 1));
    // A connection that is lost without a FIN counts as silent after three seconds.
    let _silent = begin(&site, &file, 0..8 * MIB, 2 * MIB);
    wait_for(|| add(&site, &file, 0..8 * MIB).status == 202);
    assert_eq!(complete(&site, &file).status, 201);
    assert!(content(&site, "f") == file);
}

#[test]
fn digest_decides_where_a_range_comes_twice_with_other_bytes() {
    let (site, file) = (writable(), noise(SIZE));
    let mut wrong = file.clone();
    wrong[5 * MIB..5 * MIB + 100].fill(7);
    for (first, last, status) in [(&wrong, &file, 201), (&file, &wrong, 422)] {
        let _ = std::fs::remove_file(site.dir.path().join("f"));
        for (bytes, range) in [(first, 0..8 * MIB), (&file, 8 * MIB..SIZE), (last, 4 * MIB..6 * MIB)] {
            assert_eq!(add(&site, bytes, range).status, 202);
        }
        assert_eq!(complete(&site, &file).status, status);
        assert_eq!(names(&site).len(), usize::from(status == 201));
        assert!(status == 422 || content(&site, "f") == file);
    }
    assert_eq!(status(&site, &head("HEAD", &resource("f", ID), &[]), b""), 404, "it is deleted");
    // A range is discarded if its second transmission breaks off.
    assert_eq!(add(&site, &file, 0..SIZE).status, 202);
    drop(begin(&site, &wrong, 4 * MIB..6 * MIB, MIB + 100));
    wait_for(|| held(&site) != format!("bytes=0-{}", SIZE - 1));
    assert_eq!(complete(&site, &file).status, 409);
    assert_eq!(add(&site, &file, 4 * MIB..6 * MIB).status, 202);
    assert_eq!(complete(&site, &file).status, 201);
}

#[test]
fn ranges_of_other_uploads_and_sizes_are_refused() {
    let (site, file) = (writable(), noise(SIZE));
    let other = resource("f", OTHER);
    let mut first = begin(&site, &file, 0..MIB, 100);
    assert_eq!(status(&site, &range(&other, 0..MIB, SIZE), &file[..MIB]), 423);
    let shorter = range(&resource("f", ID), 2 * MIB..3 * MIB, SIZE - 1);
    assert_eq!(status(&site, &shorter, &file[..MIB]), 400);
    assert_eq!(put(&site, "/f", &file[..MIB]), 423);
    assert_eq!(first.ask("", &file[100..MIB]).status, 202);
    // An idle upload is evicted.
    assert_eq!(status(&site, &range(&other, 0..MIB, SIZE), &file[..MIB]), 202);
    assert_eq!(status(&site, &head("DELETE", &other, &[]), b""), 204);
    assert_eq!(names(&site).len(), 0);
}

/// The next ranges arrive one second apart, as over a path with a long queue.
#[test]
fn upload_between_two_ranges_is_kept_from_another_for_three_seconds() {
    let file = noise(SIZE);
    let length = format!("Content-Length: {SIZE}");
    let other = resource("f", OTHER);
    let rivals = [
        (range(&other, 0..MIB, SIZE), MIB),
        (patch(&other, 0, SIZE, SIZE, true), SIZE),
        (head("PUT", "/f", &[&length]), SIZE),
    ];
    std::thread::scope(|threads| {
        for (request, length) in &rivals {
            let file = &file;
            threads.spawn(move || {
                let site = writable();
                assert_eq!(add(&site, file, 0..MIB).status, 202);
                let mut rival = Talk::to(&site);
                rival.send(request, &file[..MIB]);
                for start in [MIB, 2 * MIB] {
                    std::thread::sleep(Duration::from_secs(1));
                    assert_eq!(add(&site, file, start..start + MIB).status, 202);
                }
                assert_eq!(add(&site, file, 3 * MIB..SIZE).status, 202);
                let completed = complete(&site, file);
                assert_eq!(completed.status, 201, "it was given up: {completed:?}");
                // The other upload is accepted once this one is complete, or was refused before.
                let _ = rival.0.write_all(&file[MIB..*length]);
                let rival = rival.answer().status;
                assert!(matches!(rival, 201 | 202 | 204 | 423), "{rival}");
                let _ = status(&site, &head("DELETE", &resource("f", OTHER), &[]), b"");
                // A discarded upload frees its place.
                assert_eq!(add(&site, file, 0..MIB).status, 202);
                wait_for(|| put(&site, "/f", file) == 204);
            });
        }
    });
}
