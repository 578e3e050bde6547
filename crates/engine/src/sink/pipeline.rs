//! From received segments to a complete file: what `get` and the server's uploads share.
//!
//! ```text
//! receivers -- Inlet: take, fill, hand over --> queue --> writers --> part file --> target
//!     ^                    |                                 |
//!     '-- wait: no segment is free <------ Ring <-- freed ---+--> Checkpoint: fdatasync, then journal
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use longhaul_sys::write_back;
use thiserror::Error;

use super::checkpoint::Checkpoint;
use super::journal::Journal;
use super::output_error::OutputError;
use super::part_file::PartFile;
use super::pool::Segment;
use super::ring::{Flow, Ring};
use super::writer::{self, Writer, WriterChoice};
use crate::cancel::Cancel;
use crate::digest;
use crate::threads::named;
use longhaul_core::checksum::{Algorithm, Checksum};

/// Why a running pipeline takes no more.
#[derive(Debug, Error)]
pub enum PipelineError {
    /// The file.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A thread could not be started.
    #[error("cannot start a thread for {0}: {1}")]
    Thread(&'static str, io::Error),
}

/// One file on its way to the disk.
#[derive(Debug)]
pub struct Pipeline {
    part: PartFile,
    /// How to resume later; `None` where that cannot be.
    journal: Option<Journal>,
    size: Option<Bytes>,
    resumed: Bytes,
    choice: WriterChoice,
    ring: Ring,
    checkpoint: Checkpoint,
}

/// Where received bytes go in; the pipeline ends once the last clone is gone.
#[derive(Debug, Clone)]
pub struct Inlet<'a> {
    ring: &'a Ring,
    queue: Sender<Segment>,
}

/// The threads of a pipeline.
#[derive(Debug)]
#[must_use = "the last pieces are on the disk only after `end`"]
pub struct Running<'scope> {
    checkpoint: &'scope Checkpoint,
    writers: Vec<ScopedJoinHandle<'scope, ()>>,
    committer: Option<ScopedJoinHandle<'scope, ()>>,
}

impl Pipeline {
    /// Makes one for a file of which `committed` is there.
    pub fn new(
        part: PartFile,
        journal: Option<Journal>,
        size: Option<Bytes>,
        committed: RangeSet,
        choice: WriterChoice,
        ring: Ring,
    ) -> Self {
        let resumed = committed.total();
        Self { part, journal, size, resumed, choice, ring, checkpoint: Checkpoint::new(committed) }
    }

    /// Writes the journal as it stands before the first byte: what was begun can be found again.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn note(&self) -> Result<(), OutputError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let stored = self.part.store(journal, &self.checkpoint.ranges());
        stored.map_err(|source| self.journal_failed("write", source))?;
        self.sync_names()
    }

    /// Makes the names of the partial file and its journal durable: what was committed can then be promised.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn sync_names(&self) -> Result<(), OutputError> {
        self.part.sync_names().map_err(|source| self.journal_failed("sync the directory of", source))
    }

    fn journal_failed(&self, operation: &'static str, source: io::Error) -> OutputError {
        OutputError::Write { operation, path: self.part.journal_path(), source }
    }

    /// Opens the way in, and the queue for [`Pipeline::start`].
    pub fn inlet(&self) -> (Inlet<'_>, Receiver<Segment>) {
        let (queue, segments) = crossbeam_channel::unbounded();
        (Inlet { ring: &self.ring, queue }, segments)
    }

    /// Reserves the file's space, forgets what a partial file holds that is not resumed, and opens its writer.
    ///
    /// # Errors
    /// [`OutputError`]: no space, or a writer that cannot write here. Where there is no space, an earlier
    /// transfer's part can still be resumed.
    pub fn prepare(&self) -> Result<Arc<dyn Writer>, OutputError> {
        if let Some(size) = self.size {
            self.part.reserve(size)?;
        }
        if self.resumed == Bytes::ZERO {
            self.part.start_over()?;
        }
        if self.size.is_none() {
            self.part.empty()?;
        }
        let opened = writer::open(self.choice, self.part.file(), self.size);
        opened.map(Arc::from).map_err(|source| OutputError::Writer {
            path: self.part.path().to_owned(),
            writer: self.choice.name(),
            source,
        })
    }

    /// Starts the writers, and the thread that commits what they write; `fail` hears why one cannot go on.
    ///
    /// After a failure segments are still taken and freed, so that no receiver waits for ever.
    pub fn start<'scope, 'env: 'scope>(
        &'scope self,
        threads: &'scope Scope<'scope, 'env>,
        writer: &Arc<dyn Writer>,
        segments: &Receiver<Segment>,
        fail: &'scope (dyn Fn(PipelineError) + Sync),
    ) -> Running<'scope> {
        let committer = self.journal.as_ref().and_then(|journal| {
            // Before the first write, so that its descriptor hears of every write-back error.
            let file = self.part.reopen();
            let store = |committed: &RangeSet| self.part.store(journal, committed);
            let commit = move || {
                if let Err(source) = file.and_then(|file| self.checkpoint.run(&file, store)) {
                    fail(self.journal_failed("commit to", source).into());
                }
            };
            let started = named("checkpoint").spawn_scoped(threads, commit);
            started.map_err(|error| fail(PipelineError::Thread("the journal", error))).ok()
        });
        let start = |_| {
            let (writer, segments) = (Arc::clone(writer), segments.clone());
            let drain = move || self.drain(&segments, writer.as_ref(), fail);
            let started = named("writer").spawn_scoped(threads, drain);
            started.map_err(|error| fail(PipelineError::Thread("the writer", error))).ok()
        };
        let writers = (0..writer.threads()).filter_map(start).collect();
        Running { checkpoint: &self.checkpoint, writers, committer }
    }

    /// Writes segments until every receiver is gone.
    fn drain(&self, segments: &Receiver<Segment>, writer: &dyn Writer, fail: &dyn Fn(PipelineError)) {
        let mut failed = false;
        for segment in segments {
            if failed {
                continue;
            }
            match self.ring.writing(|| writer.write(segment.range().start(), segment.data())) {
                Ok(()) => self.checkpoint.wrote(segment.range()),
                Err(source) => {
                    failed = true;
                    self.checkpoint.write_failed();
                    let path = self.part.path().to_owned();
                    fail(OutputError::Write { operation: "write", path, source }.into());
                }
            }
        }
    }

    /// Reads the file's digest from the device, where the kernel lets go of its copy: a write that was lost is
    /// found too. `Ok(None)` where cancelled.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn read_back(&self, algorithm: Algorithm, cancel: &Cancel) -> Result<Option<Checksum>, OutputError> {
        let (file, whole) = (self.part.file(), ByteRange::with_len(0, self.written()));
        let synced = file.sync_data().and_then(|()| write_back::finish_and_drop(file, whole));
        let read =
            synced.and_then(|()| self.part.reopen()).and_then(|file| digest::of(file, algorithm, cancel));
        read.map_err(|source| OutputError::Write {
            operation: "verify",
            path: self.part.path().to_owned(),
            source,
        })
    }

    /// Makes the file durable and gives it its final name, in place of another only where that is wished.
    ///
    /// # Errors
    /// [`OutputError`]; what was received then stays.
    pub fn finish(&self, replace: bool) -> Result<PathBuf, OutputError> {
        self.part.finish(replace)
    }

    /// Returns the partial file.
    pub fn part(&self) -> &PartFile {
        &self.part
    }

    /// Returns how the next run would know the file, where it can go on.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Returns the file's size, where it is known.
    pub fn size(&self) -> Option<Bytes> {
        self.size
    }

    /// Returns how much was there at the start.
    pub fn resumed(&self) -> Bytes {
        self.resumed
    }

    /// Returns how much of the file has been handed to the kernel, in this run or before.
    pub fn written(&self) -> Bytes {
        self.checkpoint.written()
    }

    /// Returns whether all of the file has been; one of unknown size never.
    pub fn is_complete(&self) -> bool {
        self.size.is_some_and(|size| self.checkpoint.covers(ByteRange::with_len(0, size)))
    }

    /// Returns whether the next run can go on from what is there.
    pub fn is_resumable(&self) -> bool {
        self.journal.is_some() && self.written() > Bytes::ZERO
    }

    /// Returns the application buffer.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

impl Inlet<'_> {
    /// Takes a segment to be filled, as [`Ring::take`] does.
    ///
    /// # Errors
    /// ENOMEM where the kernel has no memory for it.
    pub fn take(&self, range: ByteRange, patience: Duration, flow: Flow) -> io::Result<Option<Segment>> {
        self.ring.take(range, patience, flow)
    }

    /// Hands a segment to the writers.
    pub fn hand_over(&self, segment: Segment) {
        if !segment.data().is_empty() {
            // Fails only where every writer is gone, and then the pipeline has failed.
            let _ = self.queue.send(segment);
        }
    }
}

impl Running<'_> {
    /// Waits until everything handed over is written and committed; every [`Inlet`] must be gone.
    pub fn end(self) {
        // A panic in one has told itself.
        self.writers.into_iter().for_each(|writer| drop(writer.join()));
        self.checkpoint.end();
        self.committer.into_iter().for_each(|committer| drop(committer.join()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use longhaul_core::proto::http::Validator;

    use super::*;
    use crate::sink::ring::AppBuffer;

    const SIZE: Bytes = Bytes::new(300_000);

    fn pipeline(target: &std::path::Path, size: Bytes) -> Pipeline {
        let journal = Journal::new("u", "u".into(), size, &Validator::parse("\"a\"").unwrap());
        let part = PartFile::open(target).unwrap();
        let committed = part.journal().map_or_else(RangeSet::new, |journal| journal.committed());
        let ring = Ring::new(AppBuffer::Fixed(Bytes::kib(128)), None, 1);
        Pipeline::new(part, Some(journal), Some(size), committed, WriterChoice::Auto, ring)
    }

    /// Fills `range` with sevens; returns what failed.
    fn run(pipeline: &Pipeline, range: ByteRange) -> Vec<String> {
        let failures = Mutex::new(Vec::new());
        let fail = |error: PipelineError| failures.lock().unwrap().push(error.to_string());
        thread::scope(|threads| {
            let (inlet, segments) = pipeline.inlet();
            let running = pipeline.start(threads, &pipeline.prepare().unwrap(), &segments, &fail);
            let mut start = range.start();
            while start < range.end() {
                let wanted = ByteRange::new(start, range.end());
                let mut segment =
                    inlet.take(wanted, Duration::from_secs(10), Flow::default()).unwrap().unwrap();
                let spare = segment.spare();
                spare.fill(7);
                let filled = spare.len();
                segment.fill(filled);
                start += filled as u64;
                inlet.hand_over(segment);
            }
            drop(inlet);
            running.end();
        });
        failures.into_inner().unwrap()
    }

    #[test]
    fn goes_on_from_what_another_run_has_committed_and_verifies_it() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let target = dir.path().join("file");
        let first = pipeline(&target, SIZE);
        assert_eq!(run(&first, ByteRange::new(0, 100_000)), [""; 0]);
        assert!(first.is_resumable() && !first.is_complete());
        drop(first);
        let second = pipeline(&target, SIZE);
        assert_eq!(second.resumed(), Bytes::new(100_000));
        assert_eq!(run(&second, ByteRange::new(100_000, SIZE.get())), [""; 0]);
        assert!(second.is_complete() && !target.exists());
        let digest = second.read_back(Algorithm::Blake3, &Cancel::new()).unwrap().unwrap();
        assert_eq!(
            digest.to_string(),
            format!("blake3:{}", blake3::hash(&vec![7; SIZE.as_usize()]).to_hex())
        );
        assert_eq!(second.finish(true).unwrap(), target);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// /dev/full takes no byte: neither does it hold up who hands over, nor is anything of it committed.
    #[test]
    fn a_writer_that_fails_holds_nobody_up() {
        struct Full;
        impl Writer for Full {
            fn name(&self) -> &'static str {
                "full"
            }
            fn write(&self, _offset: u64, data: &[u8]) -> io::Result<()> {
                io::Write::write_all(&mut std::fs::File::options().write(true).open("/dev/full")?, data)
            }
            fn threads(&self) -> usize {
                2
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let pipeline = pipeline(&dir.path().join("file"), SIZE);
        pipeline.prepare().unwrap();
        let failures = Mutex::new(Vec::new());
        let fail = |error: PipelineError| failures.lock().unwrap().push(error.to_string());
        let full: Arc<dyn Writer> = Arc::new(Full);
        thread::scope(|threads| {
            let (inlet, segments) = pipeline.inlet();
            let running = pipeline.start(threads, &full, &segments, &fail);
            for n in 0..20 {
                let range = ByteRange::new(n * 1000, (n + 1) * 1000);
                let mut segment =
                    inlet.take(range, Duration::from_secs(10), Flow::default()).unwrap().unwrap();
                segment.fill(1000);
                inlet.hand_over(segment);
            }
            drop(inlet);
            running.end();
        });
        assert!(failures.into_inner().unwrap()[0].contains("No space left"));
        assert!(!pipeline.is_resumable() && pipeline.part().journal().is_none());
    }
}
