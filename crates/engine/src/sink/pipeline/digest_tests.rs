//! Tests of the digests of written files, for any order of writes.

use std::path::Path;
use std::thread;
use std::time::Instant;

use longhaul_core::checksum::Algorithm;
use sha2::Digest as _;

use super::tests::{filled, writing};
use super::*;
use crate::cancel::Cancel;
use crate::digest::FileDigests;
use crate::sink::memory_budget::{AppBuffer, MemoryBudget};

const SEGMENT: u64 = 64 << 10;
const SEGMENTS: u64 = 60;
const PIECE: Bytes = Bytes::new(SEGMENT * 7);
const SHA256: WantedDigests = WantedDigests { whole: Some(Algorithm::Sha256), pieces: None };

/// Creates the pipeline of a file of [`SEGMENTS`], which an earlier pipeline may have started.
fn pipeline(target: &Path, wanted: WantedDigests, tree: bool) -> Pipeline {
    pipeline_with(target, wanted, tree, (Bytes::mib(4), Bytes::new(SEGMENT)))
}

fn fresh(wanted: WantedDigests) -> (tempfile::TempDir, Pipeline) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let pipeline = pipeline(&dir.path().join("file"), wanted, false);
    (dir, pipeline)
}

#[track_caller]
fn verify(pipeline: &Pipeline) {
    assert_eq!(digests(pipeline, SHA256).whole, sha256(&whole(pipeline)));
}

/// Creates the pipeline with these sizes of the application buffer and its segments.
fn pipeline_with(target: &Path, wanted: WantedDigests, tree: bool, buffer: (Bytes, Bytes)) -> Pipeline {
    let size = Bytes::new(SEGMENT * SEGMENTS - 5);
    let pool = SegmentPool::new(&MemoryBudget::new(AppBuffer::Fixed(buffer.0)), Some(buffer.1), 1);
    let pipeline = Pipeline { pool, ..super::tests::pipeline(target, size) };
    pipeline.hashing_in_order(wanted, tree.then(|| Arc::new(TreeDigest::new(size).unwrap())))
}

fn content(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64).map(|at| (at * 31 % 251) as u8).collect()
}

fn whole(pipeline: &Pipeline) -> Vec<u8> {
    content(0, pipeline.size().unwrap().as_usize())
}

fn sha256(bytes: &[u8]) -> Option<Checksum> {
    Checksum::new(Algorithm::Sha256, &sha2::Sha256::digest(bytes))
}

/// Passes the numbered segments to the writers, then calls `meanwhile` before the pipeline ends.
fn write(pipeline: &Pipeline, segments: impl IntoIterator<Item = u64>, meanwhile: impl FnOnce()) {
    let failures = writing(pipeline, &pipeline.prepare().unwrap(), |inlet| {
        for number in segments {
            let end = ((number + 1) * SEGMENT).min(pipeline.size().unwrap().get());
            let range = ByteRange::new(number * SEGMENT, end);
            inlet.hand_over(filled(inlet, range, &content(range.start(), range.len().as_usize())));
        }
        assert!(pipeline.drain());
        meanwhile();
    });
    assert!(failures.is_empty(), "{failures:?}");
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn digests(pipeline: &Pipeline, wanted: WantedDigests) -> FileDigests {
    pipeline.digests(wanted, &Cancel::new()).unwrap().unwrap()
}

#[test]
fn digests_in_order_of_segments_in_any_order() {
    let orders: [fn(u64) -> u64; 3] = [|n| n, |n| SEGMENTS - 1 - n, |n| n * 37 % SEGMENTS];
    let wanted = WantedDigests { pieces: Some((Algorithm::Sha256, PIECE)), ..SHA256 };
    for order in orders {
        let (_dir, pipeline) = fresh(wanted);
        write(&pipeline, (0..SEGMENTS).map(order), || ());
        let bytes = whole(&pipeline);
        let found = digests(&pipeline, wanted);
        let pieces: Vec<_> = bytes.chunks(PIECE.as_usize()).filter_map(sha256).collect();
        assert_eq!(found, FileDigests { whole: sha256(&bytes), pieces });
        assert_eq!(digests(&pipeline, wanted), found, "a second time");
    }
}

/// Several streams each deliver their own range of the file.
#[test]
fn only_the_last_bytes_are_hashed_after_the_end() {
    let (_dir, pipeline) = fresh(SHA256);
    let (first, second) = (0..SEGMENTS / 2, SEGMENTS / 2..SEGMENTS - 1);
    let side_by_side = first.zip(second).flat_map(|(a, b)| [a, b]).chain([SEGMENTS / 2 - 1]);
    let all_but_last = (SEGMENTS - 1) * SEGMENT;
    write(&pipeline, side_by_side, || {
        until("hashed while the transfer runs", || pipeline.follower.hashed() == all_but_last);
    });
    write(&pipeline, [SEGMENTS - 1], || ());
    let before = pipeline.follower.bytes_read_back();
    verify(&pipeline);
    assert!(pipeline.follower.bytes_read_back() - before <= SEGMENT);
}

#[test]
fn ranges_of_an_earlier_run_are_hashed_during_the_transfer() {
    for tree in [false, true] {
        let wanted = if tree { WantedDigests::default() } else { SHA256 };
        let dir = tempfile::tempdir_in(".").unwrap();
        let target = dir.path().join("file");
        write(&pipeline(&target, WantedDigests::default(), false), 0..40, || ());
        let second = pipeline(&target, wanted, tree);
        assert_eq!(second.resumed(), Bytes::new(40 * SEGMENT));
        let is_hashed = || match &second.follower.tree {
            Some(tree) => tree.missing() == [ByteRange::new(50 * SEGMENT, second.size().unwrap().get())],
            None => second.follower.hashed() == 50 * SEGMENT,
        };
        write(&second, 40..50, || until("the earlier run's part", is_hashed));
        write(&second, 50..SEGMENTS, || ());
        let (bytes, cancel) = (whole(&second), Cancel::new());
        let blake3 = Checksum::new(Algorithm::Blake3, blake3::hash(&bytes).as_bytes());
        let (algorithm, right) =
            if tree { (Algorithm::Blake3, blake3) } else { (Algorithm::Sha256, sha256(&bytes)) };
        assert_eq!(second.digest(algorithm, &cancel).unwrap(), right, "{tree}");
    }
}

#[test]
fn forgotten_range_is_hashed_when_rewritten() {
    let (_dir, pipeline) = fresh(SHA256);
    let wrong = ByteRange::new(3 * SEGMENT, 5 * SEGMENT);
    write(&pipeline, 0..SEGMENTS, || ());
    digests(&pipeline, SHA256);
    pipeline.part().file().write_all_at(&[0; 1000], wrong.start()).unwrap();
    assert_eq!(digests(&pipeline, SHA256).whole, sha256(&whole(&pipeline)), "hashed before");
    pipeline.forget(wrong).unwrap();
    assert!(pipeline.follower.hashed() <= wrong.start());
    write(&pipeline, 3..5, || ());
    verify(&pipeline);
    // The change is on the disk only.
    pipeline.part().file().write_all_at(&[0; 1000], wrong.start()).unwrap();
    let on_disk = pipeline.read_back(SHA256, &Cancel::new()).unwrap().unwrap();
    assert!(on_disk.whole.is_some() && on_disk.whole != sha256(&whole(&pipeline)));
}

/// Offers a segment to the follower as a writer does, without writing it.
fn offer(pipeline: &Pipeline, number: u64) {
    let (inlet, _queue) = pipeline.inlet();
    let range = ByteRange::with_len(number * SEGMENT, Bytes::new(SEGMENT));
    let segment = filled(&inlet, range, &content(range.start(), SEGMENT as usize));
    pipeline.follower.offer(segment, || pipeline.pool.usage());
}

#[test]
fn parked_segments_are_bounded_and_hashed_without_reading() {
    let (_dir, pipeline) = fresh(SHA256);
    let offer = |number| offer(&pipeline, number);
    // No thread would take the segment.
    offer(0);
    assert_eq!(pipeline.pool.usage().in_use, 0);
    let round = pipeline.follower.begin();
    // A quarter of 4 MiB, out of order.
    [1, 0, 3, 2, 16, 40].into_iter().for_each(offer);
    assert_eq!(pipeline.pool.usage().in_use, 4);
    pipeline.follower.end();
    let file = pipeline.part.reopen().unwrap();
    thread::scope(|threads| {
        threads.spawn(|| pipeline.follower.run(&file, RangeSet::new, || true).unwrap());
    });
    assert_eq!((pipeline.follower.hashed(), pipeline.follower.bytes_read_back()), (4 * SEGMENT, 0));
    assert_eq!(pipeline.pool.usage().in_use, 0);
    drop(round);
}

/// All fragments together are less than a quarter of the application buffer; their segments exceed
/// the whole buffer.
#[test]
fn fragments_in_large_segments_leave_memory_for_the_missing_front() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let buffer = (Bytes::mib(64), Bytes::mib(4));
    let pipeline = pipeline_with(&dir.path().join("file"), SHA256, false, buffer);
    let round = pipeline.follower.begin();
    (1..SEGMENTS - 1).for_each(|number| offer(&pipeline, number));
    assert_eq!(pipeline.pool.usage().in_use, 4);
    drop(round);
    write(&pipeline, (1..SEGMENTS).chain([0]), || ());
    verify(&pipeline);
}

#[test]
fn parked_segments_are_freed_if_the_front_stays_missing() {
    let (_dir, pipeline) = fresh(SHA256);
    write(&pipeline, 1..10, || {
        until("parked segments are freed", || pipeline.pool.usage().in_use == 0);
    });
    write(&pipeline, (10..SEGMENTS).chain([0]), || ());
    verify(&pipeline);
}

/// The state if the file cannot be opened again, or the thread cannot be started.
#[test]
fn no_segment_stays_parked_without_the_hashing_thread() {
    let (_dir, pipeline) = fresh(SHA256);
    write(&pipeline, 0..SEGMENTS, || ());
    pipeline.follower.forget(ByteRange::new(0, SEGMENT));
    let round = pipeline.follower.begin();
    offer(&pipeline, 0);
    offer(&pipeline, 1);
    assert_eq!(pipeline.pool.usage().in_use, 2);
    // The digest does not wait for parked segments: all bytes are in the file.
    verify(&pipeline);
    assert_eq!(pipeline.pool.usage().in_use, 0);
    pipeline.follower.forget(ByteRange::new(0, SEGMENT));
    offer(&pipeline, 1);
    assert_eq!(pipeline.pool.usage().in_use, 1);
    drop(round);
    assert_eq!(pipeline.pool.usage().in_use, 0);
    offer(&pipeline, 1);
    assert_eq!(pipeline.pool.usage().in_use, 0);
}
