use std::path::PathBuf;
use std::thread;

use longhaul_core::checksum::Algorithm;
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::Validator;
use parking_lot::Mutex;

use super::*;
use crate::cancel::Cancel;
use crate::sink::journal::StoredJournal;
use crate::sink::memory_budget::{AppBuffer, MemoryBudget};
use crate::sink::output::Output;
use crate::sink::segment_pool::{Flow, Segment};

const SIZE: Bytes = Bytes::new(300_000);

fn open(target: &std::path::Path) -> Result<PartFile, OutputError> {
    Output::File(target.to_owned()).prepare()?.open(None)
}

fn pool() -> SegmentPool {
    SegmentPool::new(&MemoryBudget::new(AppBuffer::Fixed(Bytes::kib(128))), None, 1)
}

pub(super) fn pipeline(target: &std::path::Path, size: Bytes) -> Pipeline {
    let tag = Identity::from(Validator::parse("\"a\"").unwrap());
    let journal = Journal::new(size, vec![JournalSource::new("u", "u".to_owned(), tag)], None);
    let part = open(target).unwrap();
    let committed = part.journal().unwrap().sound();
    let committed = committed.map_or_else(RangeSet::new, |journal| journal.committed.clone());
    let pool = pool();
    Pipeline::new(part, Some(journal), Some(size), committed, WriterChoice::Auto, pool)
}

/// Creates the pipeline of a new file without a journal.
fn fresh(size: Option<Bytes>) -> (tempfile::TempDir, PathBuf, Pipeline) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let target = dir.path().join("file");
    let part = open(&target).unwrap();
    let pipeline = Pipeline::new(part, None, size, RangeSet::new(), WriterChoice::Auto, pool());
    (dir, target, pipeline)
}

/// Runs the writers while `pass` passes segments to them; returns the failures.
pub(super) fn writing(
    pipeline: &Pipeline,
    writer: &Arc<dyn Writer>,
    pass: impl FnOnce(&Inlet<'_>),
) -> Vec<OutputError> {
    let failures = Mutex::new(Vec::new());
    let fail = |error: OutputError| failures.lock().push(error);
    thread::scope(|threads| {
        let (inlet, segments) = pipeline.inlet();
        let running = pipeline.start(threads, writer, &segments, &fail);
        pass(&inlet);
        drop(inlet);
        running.end();
    });
    failures.into_inner()
}

/// Fills `range` with the byte 7; returns the failures.
fn run(pipeline: &Pipeline, range: ByteRange) -> Vec<String> {
    run_through(pipeline, &pipeline.prepare().unwrap(), range)
}

fn run_through(pipeline: &Pipeline, writer: &Arc<dyn Writer>, range: ByteRange) -> Vec<String> {
    let failures = writing(pipeline, writer, |inlet| {
        let mut start = range.start();
        while start < range.end() {
            // A segment ends at a multiple of its size.
            let end = (start + 1).next_multiple_of(64 << 10).min(range.end());
            hand_over(inlet, ByteRange::new(start, end), 7);
            start = end;
        }
    });
    failures.iter().map(OutputError::to_string).collect()
}

/// Applies `change` to the partial file after its first bytes, and continues writing; returns the
/// reason why the file is not completed.
fn changed(size: Option<Bytes>, change: impl FnOnce(&std::path::Path)) -> String {
    let dir = tempfile::tempdir_in(".").unwrap();
    let target = dir.path().join("file");
    let size = FileSize::new(size);
    let pipeline = Pipeline { size, choice: WriterChoice::Buffered, ..pipeline(&target, SIZE) };
    assert_eq!(run(&pipeline, ByteRange::new(0, 100_000)), [""; 0]);
    let writer = pipeline.prepare().unwrap();
    change(pipeline.part().path());
    let failures = run_through(&pipeline, &writer, ByteRange::new(100_000, SIZE.get()));
    let refused = pipeline.finish(true).unwrap_err().to_string();
    assert!(!pipeline.is_resumable() && !target.exists());
    let left = |name: &str| dir.path().join(name).exists();
    assert!(!left("file.longhaul-journal") && !left("file.longhaul-journal~"));
    failures.into_iter().next().unwrap_or(refused)
}

#[test]
fn partial_file_that_another_program_changes_is_not_completed() {
    let cut = |path: &std::path::Path| {
        std::fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap()
    };
    let removed = |path: &std::path::Path| std::fs::remove_file(path).unwrap();
    let replaced = |path: &std::path::Path| {
        removed(path);
        std::fs::write(path, vec![7; SIZE.as_usize()]).unwrap();
    };
    for size in [Some(SIZE), None] {
        for (error, message) in [
            (changed(size, cut), "a length of 1000 bytes instead of"),
            (changed(size, removed), "file.longhaul-part was removed by another program"),
            (changed(size, replaced), "file.longhaul-part was replaced by another program"),
        ] {
            assert!(error.contains(message), "{error}");
        }
    }
}

/// A byte that changes on the disk after its write is detected only by reading back from the disk.
#[test]
fn digest_in_passing_reads_back_only_ranges_of_an_earlier_run() {
    const SIZE: Bytes = Bytes::mib(9);
    let wanted = blake3::hash(&vec![7; SIZE.as_usize()]).to_hex();
    for (in_passing, before, after, found) in [
        (true, None, Some(5 << 20), true),
        (true, Some(100), None, false),
        (false, None, Some(5 << 20), false),
    ] {
        let change = |pipeline: &Pipeline, at: Option<u64>| {
            at.into_iter().for_each(|at| pipeline.part().file().write_all_at(&[8], at).unwrap());
        };
        let dir = tempfile::tempdir_in(".").unwrap();
        let target = dir.path().join("file");
        assert_eq!(run(&pipeline(&target, SIZE), ByteRange::new(0, 1_000_000)), [""; 0]);
        let tree = TreeDigest::new(SIZE).filter(|_| in_passing).map(Arc::new);
        let second = pipeline(&target, SIZE).hashing(tree);
        change(&second, before);
        assert_eq!(run(&second, ByteRange::new(1_000_000, SIZE.get())), [""; 0]);
        change(&second, after);
        let digest = second.digest(Algorithm::Blake3, &Cancel::new()).unwrap().unwrap();
        let is_wanted = digest.to_string() == format!("blake3:{wanted}");
        assert_eq!(is_wanted, found, "{in_passing}, {before:?}, {after:?}");
    }
}

/// Passes 20 segments of 1,000 bytes to two threads that write by `write`; returns the failures.
fn run_with(
    pipeline: &Pipeline,
    write: impl Fn(u64, &[u8]) -> io::Result<()> + Send + Sync + 'static,
) -> Vec<OutputError> {
    pipeline.prepare().unwrap();
    if pipeline.size().is_none() {
        // The length that a real writer would produce.
        pipeline.part().file().set_len(20_000).unwrap();
    }
    let writer: Arc<dyn Writer> = Arc::new(TestWriter(2, write));
    writing(pipeline, &writer, |inlet| {
        (0..20).for_each(|n| hand_over(inlet, ByteRange::new(n * 1000, (n + 1) * 1000), 7));
        assert!(!pipeline.drain());
    })
}

/// Passes one segment, which must hold all of `range`, to the writers.
fn hand_over(inlet: &Inlet<'_>, range: ByteRange, content: u8) {
    inlet.hand_over(filled(inlet, range, &vec![content; range.len().as_usize()]));
}

pub(super) fn filled(inlet: &Inlet<'_>, range: ByteRange, content: &[u8]) -> Segment {
    let mut segment =
        inlet.pipeline().pool().take(range, Duration::from_secs(60), Flow::default()).unwrap().unwrap();
    segment.spare()[..content.len()].copy_from_slice(content);
    segment.fill(content.len());
    segment
}

/// Writes by a function of the offset and the data.
struct TestWriter<F>(usize, F);

impl<F: Fn(u64, &[u8]) -> io::Result<()> + Send + Sync> Writer for TestWriter<F> {
    fn name(&self) -> &'static str {
        "test"
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (self.1)(offset, data)
    }
    fn threads(&self) -> usize {
        self.0
    }
}

/// /dev/full accepts no byte.
#[test]
fn failed_writer_does_not_block_receivers_or_commit() {
    let full = |_, data: &[u8]| {
        io::Write::write_all(&mut std::fs::File::options().write(true).open("/dev/full")?, data)
    };
    let dir = tempfile::tempdir().unwrap();
    let pipeline = pipeline(&dir.path().join("file"), SIZE);
    let failures = run_with(&pipeline, full);
    assert!(failures[0].to_string().contains("No space left"));
    assert!(!pipeline.is_resumable() && matches!(pipeline.part().journal(), Ok(StoredJournal::Absent)));
}

#[test]
fn file_with_a_hole_or_a_failed_writer_gets_no_final_name() {
    for size in [Some(Bytes::new(300_000)), None] {
        let (_dir, target, pipeline) = fresh(size);
        assert_eq!(run(&pipeline, ByteRange::new(100_000, 300_000)), [""; 0]);
        let error = pipeline.finish(true).unwrap_err();
        assert!(error.to_string().contains("1 ranges of it are not written"), "{error}");
        assert!(!target.exists());
    }
    // With an unknown size, only the failure shows the hole.
    for size in [Some(Bytes::new(20_000)), None] {
        let (_dir, target, pipeline) = fresh(size);
        let panics = |offset, _: &[u8]| {
            assert!(offset != 3000, "as this test has it");
            Ok(())
        };
        let failures = run_with(&pipeline, panics);
        let kinds =
            failures.iter().map(|error| (error.kind(), error.to_string().contains("a writer failed")));
        assert_eq!(kinds.collect::<Vec<_>>(), [(FailureKind::Internal, true)], "{failures:?}");
        let error = pipeline.finish(true).unwrap_err().to_string();
        assert!(error.contains("not all that was received"), "{error}");
        assert!(!target.exists());
    }
}

/// The steps of a transfer that starts over: drain, forget, receive again; a sample can be read
/// meanwhile.
#[test]
fn forgotten_range_is_received_again_and_reads_as_written_last() {
    for choice in [WriterChoice::Auto, WriterChoice::Direct, WriterChoice::Mmap, WriterChoice::Buffered] {
        let dir = tempfile::tempdir_in(".").unwrap();
        let target = dir.path().join("file");
        let size = Bytes::kib(256);
        let pipeline = Pipeline { choice, ..pipeline(&target, size) };
        let failures = writing(&pipeline, &pipeline.prepare().unwrap(), |inlet| {
            for content in [1, 2] {
                (0..4).for_each(|n| hand_over(inlet, ByteRange::with_len(n << 16, Bytes::kib(64)), content));
                assert!(pipeline.drain() && pipeline.is_complete());
                let sample = pipeline.read_at(ByteRange::new(65_000, 66_000)).unwrap();
                assert_eq!(sample, [content; 1000], "{choice:?}");
                if content == 1 {
                    pipeline.forget(ByteRange::new(0, u64::MAX)).unwrap();
                    assert_eq!(pipeline.written(), Bytes::ZERO);
                    assert!(pipeline.read_at(ByteRange::new(0, 1)).is_err(), "its bytes are wrong");
                }
            }
        });
        assert!(failures.is_empty(), "{failures:?}");
        assert!(pipeline.finish(true).unwrap().warnings.is_empty());
        assert_eq!(std::fs::read(&target).unwrap(), vec![2; size.as_usize()], "{choice:?}");
    }
}

#[test]
fn restarted_body_of_unknown_size_is_truncated() {
    let (_dir, target, pipeline) = fresh(None);
    assert_eq!(run(&pipeline, ByteRange::new(0, 300_000)), [""; 0]);
    pipeline.forget(ByteRange::new(0, u64::MAX)).unwrap();
    assert_eq!(pipeline.part().file().metadata().unwrap().len(), 0);
    assert_eq!(run(&pipeline, ByteRange::new(0, 1000)), [""; 0]);
    let finished = pipeline.finish(true).unwrap();
    assert_eq!((std::fs::read(target).unwrap(), finished.warnings.len()), (vec![7; 1000], 0));
}

#[test]
fn drain_waits_for_earlier_segments_only() {
    let (_dir, _, pipeline) = fresh(Some(SIZE));
    pipeline.prepare().unwrap();
    // The writer blocks at each segment until permitted to write it.
    let (open, gate) = crossbeam_channel::unbounded::<()>();
    let gated = move |_, _: &[u8]| gate.recv().map_err(io::Error::other);
    let writer: Arc<dyn Writer> = Arc::new(TestWriter(1, gated));
    let failures = writing(&pipeline, &writer, |inlet| {
        hand_over(inlet, ByteRange::new(0, 10), 1);
        let epoch = pipeline.backlog.epoch();
        thread::scope(|threads| {
            let drained = threads.spawn(|| pipeline.drain());
            while pipeline.backlog.epoch() == epoch {
                thread::yield_now();
            }
            assert!(!drained.is_finished());
            hand_over(inlet, ByteRange::new(10, 20), 1);
            open.send(()).unwrap();
            assert!(drained.join().unwrap() && pipeline.written() == Bytes::new(10));
        });
        open.send(()).unwrap();
        assert!(pipeline.drain() && pipeline.written() == Bytes::new(20));
    });
    assert!(failures.is_empty(), "{failures:?}");
}
