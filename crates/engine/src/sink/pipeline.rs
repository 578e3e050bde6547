//! From received segments to a complete file, for `get` and the server's uploads.
//!
//! ```text
//! receivers -- SegmentFiller: take, fill -----> queue --> writers --> part file --> target
//!     ^                    |                                 |
//!     '-- wait: no segment is free <--- segment pool <-- freed ---+--> Checkpoint: fdatasync, then journal
//! ```

#[cfg(test)]
mod digest_tests;
mod file_digest;
mod hash_follower;
mod inlet;
mod part_checks;
#[cfg(test)]
mod tests;
mod threads;

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::Receiver;
use longhaul_core::checksum::Checksum;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use parking_lot::Mutex;

use hash_follower::HashFollower;
pub use inlet::{Inlet, SegmentFiller, SegmentQueue};
pub use threads::Running;

use super::backlog::Backlog;
pub use super::backlog::QueuedSegment;
use super::checkpoint::Checkpoint;
use super::journal::{Journal, JournalSource};
use super::output_error::OutputError;
use super::part_file::{Finished, PartFile};
use super::segment_pool::SegmentPool;
use super::writer::{self, StreamWriter, Writer, WriterChoice};
use crate::cancel::Cancel;
use crate::digest::WantedDigests;
use crate::job_cpu::{CoreTimes, JobCpu};
use crate::tree_digest::TreeDigest;

/// A file being written.
#[derive(Debug)]
pub struct Pipeline {
    part: PartFile,
    /// The journal; `None` if the file cannot be resumed.
    journal: Option<Mutex<Journal>>,
    size: FileSize,
    choice: WriterChoice,
    pool: SegmentPool,
    cpu: JobCpu,
    checkpoint: Checkpoint,
    backlog: Backlog,
    /// The requested digests of the written bytes.
    follower: HashFollower,
    /// Ends a blocked write to a stream; a file never blocks.
    stop: Cancel,
}

/// The size of the file, or the bounds of an unknown size.
#[derive(Debug)]
struct FileSize {
    known: Option<Bytes>,
    max: Option<Bytes>,
    /// The space that a file of unknown size leaves free.
    left_free: OnceLock<Bytes>,
}

impl FileSize {
    fn new(known: Option<Bytes>) -> Self {
        Self { known, max: None, left_free: OnceLock::new() }
    }
}

/// The most space that a file of unknown size leaves free.
const MAX_LEFT_FREE: Bytes = Bytes::mib(64);
/// The part of the free space that it leaves of a small file system.
const LEFT_FREE: u64 = 16;

impl Pipeline {
    /// Creates the pipeline of a file of which `committed` is on disk. A stream has no journal.
    pub fn new(
        part: PartFile,
        journal: Option<Journal>,
        size: Option<Bytes>,
        committed: RangeSet,
        choice: WriterChoice,
        pool: SegmentPool,
    ) -> Self {
        let journal = journal.filter(|_| !part.is_stream()).map(Mutex::new);
        let checkpoint = Checkpoint::new(committed);
        Self {
            part,
            journal,
            size: FileSize::new(size),
            choice,
            pool,
            checkpoint,
            backlog: Backlog::default(),
            cpu: JobCpu::default(),
            follower: HashFollower::new(WantedDigests::default(), None),
            stop: Cancel::new(),
        }
    }

    /// Sets the largest size permitted. It is checked as bytes arrive, and only if the file's size
    /// is unknown.
    #[must_use]
    pub fn of_at_most(self, max_size: Option<Bytes>) -> Self {
        Self { size: FileSize { max: max_size, ..self.size }, ..self }
    }

    /// Sets the flag that ends a blocked write to a stream.
    #[must_use]
    pub fn stopped_by(self, stop: Cancel) -> Self {
        Self { stop, ..self }
    }

    /// Hashes bytes written from now on, by BLAKE3's tree if given; computes no digest that depends
    /// on the file's order.
    #[must_use]
    pub fn hashing(self, tree: Option<Arc<TreeDigest>>) -> Self {
        self.hashing_in_order(WantedDigests::default(), tree)
    }

    /// Hashes bytes written from now on: by BLAKE3's tree if given, and in order for the `wanted`
    /// digests.
    #[must_use]
    pub fn hashing_in_order(self, wanted: WantedDigests, tree: Option<Arc<TreeDigest>>) -> Self {
        Self { follower: HashFollower::new(wanted, tree), ..self }
    }

    /// Writes the journal before the first byte, so that a later run finds the started transfer.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn note(&self) -> Result<(), OutputError> {
        if self.journal.is_none() {
            return Ok(());
        }
        let stored = self.store(&self.checkpoint.ranges());
        stored.map_err(|source| self.journal_failed("write", source))?;
        self.sync_names()
    }

    /// Makes the names of the partial file and its journal durable, as required before commits are
    /// promised to a client.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn sync_names(&self) -> Result<(), OutputError> {
        self.part.sync_names().map_err(|source| self.journal_failed("sync the directory of", source))
    }

    /// Creates an inlet, and the queue for [`Pipeline::start`].
    pub fn inlet(&self) -> (Inlet<'_>, Receiver<QueuedSegment>) {
        let (queue, segments) = crossbeam_channel::unbounded();
        (Inlet::new(self, queue), segments)
    }

    /// Creates a further inlet, for a queue of [`Pipeline::inlet`].
    pub fn inlet_to(&self, queue: SegmentQueue) -> Inlet<'_> {
        Inlet::new(self, queue)
    }

    /// Reserves the file's space, truncates a partial file that is not resumed, and opens the
    /// writer.
    ///
    /// # Errors
    /// [`OutputError`]: no space, or a writer that does not support the file system. Without space,
    /// an earlier transfer's partial file can still be resumed.
    pub fn prepare(&self) -> Result<Arc<dyn Writer>, OutputError> {
        self.open_writer().inspect_err(|_| self.backlog.fail())
    }

    fn open_writer(&self) -> Result<Arc<dyn Writer>, OutputError> {
        // Not if an earlier round has written: the journal then applies.
        let nothing_there = self.resumed() == Bytes::ZERO && self.checkpoint.is_untouched();
        if !nothing_there {
            // Reserving space would fill a truncated file with zeros.
            self.check_length(self.checkpoint.end_of_written())?;
        }
        if let Some(size) = self.size.known {
            self.part.reserve(size)?;
        }
        if nothing_there {
            self.part.start_over()?;
        }
        if self.size.known.is_none() && nothing_there {
            self.part.empty()?;
        }
        if self.size.known.is_none()
            && !self.part.is_stream()
            && let Ok(free) = self.part.free_space()
        {
            let _ = self.size.left_free.set(MAX_LEFT_FREE.min(Bytes::new(free.get() / LEFT_FREE)));
        }
        if self.part.is_stream() {
            let stream = StreamWriter::new(self.part.file(), self.stop.clone());
            return stream
                .map(|writer| Arc::new(writer) as Arc<dyn Writer>)
                .map_err(|source| OutputError::Create { path: self.part.path().to_owned(), source });
        }
        let opened = writer::open(self.choice, self.part.file(), self.size.known);
        opened.map(Arc::from).map_err(|source| OutputError::Writer {
            path: self.part.path().to_owned(),
            writer: self.choice.name(),
            source,
        })
    }

    /// Waits until every segment passed so far is written, but not for later ones; returns whether
    /// they are.
    ///
    /// Returns `false` as soon as writing has failed. The threads of [`Pipeline::start`] must be
    /// running or about to start.
    pub fn drain(&self) -> bool {
        self.backlog.drain()
    }

    /// Removes a range with wrong bytes from the written and committed ranges, so that it is
    /// received again.
    ///
    /// Call [`Pipeline::drain`] first: no segment of the range may be queued. A file of unknown
    /// size is truncated after its last written byte.
    ///
    /// # Errors
    /// [`OutputError::Write`]; the transfer must then end, because the journal may still contain
    /// the range. [`OutputError::Failed`] if bytes of the range were written to a stream.
    pub fn forget(&self, range: ByteRange) -> Result<(), OutputError> {
        if self.part.is_stream() && self.checkpoint.written() > Bytes::new(range.start()) {
            let message = format!(
                "cannot start over: {} have gone to {} already, and are of no use; write to a file, which can be fetched again in parts",
                self.checkpoint.written(),
                self.part.path().display()
            );
            return Err(Failure::new(FailureKind::Disk, message).into());
        }
        let forgotten = self.checkpoint.forget(range, |committed| self.store(committed));
        self.follower.forget(range);
        forgotten.map_err(|source| self.journal_failed("write", source))?;
        if self.size.known.is_some() || self.part.is_stream() {
            return Ok(());
        }
        let cut = self.part.file().set_len(self.checkpoint.ranges().end());
        let path = || self.part.path().to_owned();
        cut.map_err(|source| OutputError::Write { operation: "cut", path: path(), source })
    }

    /// Reads written bytes, of this or an earlier run.
    ///
    /// # Errors
    /// `InvalidInput` if a byte of the range is not written; else the kernel's error on the file.
    pub fn read_at(&self, range: ByteRange) -> io::Result<Vec<u8>> {
        if !self.checkpoint.covers(range) {
            let message = format!("{range} of {} are not written", self.part.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut content = vec![0; range.len().as_usize()];
        self.part.file().read_exact_at(&mut content, range.start())?;
        Ok(content)
    }

    /// Makes the file durable and gives it its final name; with `replace`, an existing file is
    /// replaced.
    ///
    /// # Errors
    /// [`OutputError`]; received bytes stay. Also if a byte is not written, and after any failure,
    /// including panics: a file with a hole never gets the final name.
    pub fn finish(&self, replace: bool) -> Result<Finished, OutputError> {
        self.check_complete()?;
        self.check_part(true)?;
        self.part.finish(replace)
    }

    /// Checks that every byte is written: up to the file's size, or up to the last byte if the size
    /// is known only at the end.
    fn check_complete(&self) -> Result<(), OutputError> {
        let incomplete = |why: String| {
            let path = self.part.path().display();
            Failure::new(
                FailureKind::Internal,
                format!("cannot complete {path}: {why}; what was committed is kept"),
            )
        };
        if self.backlog.has_failed() || !self.backlog.is_empty() {
            return Err(incomplete("not all that was received for it could be written".to_owned()).into());
        }
        let ranges = self.checkpoint.ranges();
        let end = self.size.known.map_or_else(|| ranges.end(), Bytes::get);
        let gaps = ranges.gaps(ByteRange::new(0, end));
        gaps.first().map_or(Ok(()), |first| {
            let lacking = gaps.len();
            let why = format!("{lacking} ranges of it are not written, the first of them {first}");
            Err(incomplete(why).into())
        })
    }

    /// Keeps what is written of a range of a shared file for the next transfer of it, which
    /// otherwise fetches all of the range.
    pub(crate) fn keep_slice(&self) {
        // After a failed write, earlier ones may be lost too.
        if self.backlog.has_failed() || !self.backlog.is_empty() {
            return;
        }
        if let Err(error) = self.part.keep_slice(&self.checkpoint.ranges()) {
            tracing::warn!("a range of {} begins anew: {error}", self.part.path().display());
        }
    }

    /// Returns the partial file.
    pub fn part(&self) -> &PartFile {
        &self.part
    }

    /// Returns the journal by which the next run identifies the file; `None` if the file cannot be
    /// resumed.
    pub fn journal(&self) -> Option<Journal> {
        self.journal.as_ref().map(|journal| journal.lock().clone())
    }

    /// Adds a source to the journal, which is written at the next checkpoint; does nothing without
    /// a journal.
    pub fn add_source(&self, source: JournalSource) {
        if let Some(journal) = &self.journal {
            journal.lock().add_source(source);
            self.checkpoint.journal_changed();
        }
    }

    /// Records in the journal that the complete file does not have this checksum; does nothing
    /// without a journal.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn refute(&self, checksum: Checksum) -> Result<(), OutputError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        journal.lock().refuted = Some(checksum);
        let stored = self.store(&self.checkpoint.ranges());
        stored.map_err(|source| self.journal_failed("write", source))
    }

    /// Returns the file's size, if known.
    pub fn size(&self) -> Option<Bytes> {
        self.size.known
    }

    /// Returns the ranges of the file passed to the kernel, in this or an earlier run.
    pub fn written_ranges(&self) -> RangeSet {
        self.checkpoint.ranges()
    }

    /// Returns the CPU time of the writers so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.cpu.total()
    }

    /// Returns the times of the busiest writer since the last call; supports one caller.
    pub(crate) fn take_busiest_writer(&self) -> CoreTimes {
        self.cpu.take_busiest()
    }

    /// Returns the bytes committed at the start.
    pub fn resumed(&self) -> Bytes {
        self.checkpoint.resumed()
    }

    /// Returns the bytes of the file passed to the kernel, in this or an earlier run.
    pub fn written(&self) -> Bytes {
        self.checkpoint.written()
    }

    /// Returns whether all of the file was passed to the kernel; `false` if the size is unknown.
    pub fn is_complete(&self) -> bool {
        self.size.known.is_some_and(|size| self.checkpoint.covers(ByteRange::with_len(0, size)))
    }

    /// Returns whether the next run can resume the partial file.
    pub fn is_resumable(&self) -> bool {
        self.journal.is_some() && self.written() > Bytes::ZERO && !self.part.is_discarded()
    }

    /// Returns the application buffer.
    pub fn pool(&self) -> &SegmentPool {
        &self.pool
    }
}
