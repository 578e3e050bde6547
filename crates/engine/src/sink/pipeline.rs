//! From received segments to a complete file: what `get` and the server's uploads share.
//!
//! ```text
//! receivers -- Inlet: take, fill, hand over --> queue --> writers --> part file --> target
//!     ^                    |                                 |
//!     '-- wait: no segment is free <--- segment pool <-- freed ---+--> Checkpoint: fdatasync, then journal
//! ```

#[cfg(test)]
mod digest_tests;
mod error;
mod file_digest;
mod hash_follower;
mod inlet;
mod part_checks;
#[cfg(test)]
mod tests;
mod threads;

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::Receiver;
use longhaul_core::checksum::Checksum;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

pub use error::PipelineError;
use hash_follower::HashFollower;
pub use inlet::{Inlet, SegmentQueue};
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
use crate::passing_digest::PassingDigest;
use crate::threads::lock;

/// One file on its way to the disk.
#[derive(Debug)]
pub struct Pipeline {
    part: PartFile,
    /// How to resume later; `None` where that is impossible.
    journal: Option<Mutex<Journal>>,
    size: Option<Bytes>,
    resumed: Bytes,
    choice: WriterChoice,
    pool: SegmentPool,
    cpu: JobCpu,
    checkpoint: Checkpoint,
    backlog: Backlog,
    /// The digests of what is written, where they are wanted.
    follower: HashFollower,
    /// Ends a write to a stream that takes nothing; a file never makes it wait.
    stop: Cancel,
    /// Another program has changed the partial file, which is discarded then.
    part_changed: AtomicBool,
}

impl Pipeline {
    /// Makes the pipeline of a file of which `committed` is on the disk. A stream has no journal.
    pub fn new(
        part: PartFile,
        journal: Option<Journal>,
        size: Option<Bytes>,
        committed: RangeSet,
        choice: WriterChoice,
        pool: SegmentPool,
    ) -> Self {
        let resumed = committed.total();
        let journal = journal.filter(|_| !part.is_stream()).map(Mutex::new);
        let checkpoint = Checkpoint::new(committed);
        Self {
            part,
            journal,
            size,
            resumed,
            choice,
            pool,
            checkpoint,
            backlog: Backlog::default(),
            cpu: JobCpu::default(),
            follower: HashFollower::new(WantedDigests::default(), None),
            stop: Cancel::new(),
            part_changed: AtomicBool::new(false),
        }
    }

    /// Lets `stop` end a write to a stream whose reader takes nothing.
    #[must_use]
    pub fn stopped_by(self, stop: Cancel) -> Self {
        Self { stop, ..self }
    }

    /// Hashes what is written from now on: by BLAKE3's tree, where one is given, and no digest that needs the file's order.
    #[must_use]
    pub fn hashing(self, tree: Option<Arc<PassingDigest>>) -> Self {
        self.hashing_in_order(WantedDigests::default(), tree)
    }

    /// Hashes what is written from now on: by BLAKE3's tree, where one is given, and behind the writers for what is `wanted`.
    #[must_use]
    pub fn hashing_in_order(self, wanted: WantedDigests, tree: Option<Arc<PassingDigest>>) -> Self {
        Self { follower: HashFollower::new(wanted, tree), ..self }
    }

    /// Writes the journal before the first byte, so that a transfer that has begun can be found again.
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

    /// Makes the names of the partial file and its journal durable: what was committed can then be promised.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn sync_names(&self) -> Result<(), OutputError> {
        self.part.sync_names().map_err(|source| self.journal_failed("sync the directory of", source))
    }

    /// Opens the way in, and the queue for [`Pipeline::start`].
    pub fn inlet(&self) -> (Inlet<'_>, Receiver<QueuedSegment>) {
        let (queue, segments) = crossbeam_channel::unbounded();
        (Inlet::new(self, queue), segments)
    }

    /// Opens a further way in, to a queue of [`Pipeline::inlet`].
    pub fn inlet_to(&self, queue: SegmentQueue) -> Inlet<'_> {
        Inlet::new(self, queue)
    }

    /// Reserves the file's space, drops the content of a partial file that is not resumed, and opens its writer.
    ///
    /// # Errors
    /// [`OutputError`]: no space, or a writer that cannot write here. Where there is no space, an earlier
    /// transfer's part can still be resumed.
    pub fn prepare(&self) -> Result<Arc<dyn Writer>, OutputError> {
        self.open_writer().inspect_err(|_| self.backlog.fail())
    }

    fn open_writer(&self) -> Result<Arc<dyn Writer>, OutputError> {
        // Not where an earlier round has written: its journal counts.
        let nothing_there = self.resumed == Bytes::ZERO && self.checkpoint.is_untouched();
        if !nothing_there {
            // Reserving space would fill a cut file with zeros.
            self.check_length(self.checkpoint.end_of_written())?;
        }
        if let Some(size) = self.size {
            self.part.reserve(size)?;
        }
        if nothing_there {
            self.part.start_over()?;
        }
        if self.size.is_none() && nothing_there {
            self.part.empty()?;
        }
        if self.part.is_stream() {
            let stream = StreamWriter::new(self.part.file(), self.stop.clone());
            return stream
                .map(|writer| Arc::new(writer) as Arc<dyn Writer>)
                .map_err(|source| OutputError::Create { path: self.part.path().to_owned(), source });
        }
        let opened = writer::open(self.choice, self.part.file(), self.size);
        opened.map(Arc::from).map_err(|source| OutputError::Writer {
            path: self.part.path().to_owned(),
            writer: self.choice.name(),
            source,
        })
    }

    /// Waits until every segment handed over so far is written, whatever is handed over meanwhile; returns whether it is.
    ///
    /// Returns false as soon as writing has failed. The threads of [`Pipeline::start`] must be running or about
    /// to start.
    pub fn drain(&self) -> bool {
        self.backlog.drain()
    }

    /// Takes a range whose bytes are wrong out of the written and the committed ranges, to be received again.
    ///
    /// No segment of the range may be on its way: [`Pipeline::drain`] first. A file of unknown size is cut after
    /// the last byte that is left.
    ///
    /// # Errors
    /// [`OutputError::Write`]; the transfer must then end, for the journal may still count the range as right.
    /// [`OutputError::Sent`] where bytes of the range have gone to a stream.
    pub fn forget(&self, range: ByteRange) -> Result<(), OutputError> {
        if self.part.is_stream() && self.checkpoint.written() > Bytes::new(range.start()) {
            let (path, sent) = (self.part.path().to_owned(), self.checkpoint.written());
            return Err(OutputError::Sent { path, sent });
        }
        let forgotten = self.checkpoint.forget(range, |committed| self.store(committed));
        self.follower.forget(range);
        forgotten.map_err(|source| self.journal_failed("write", source))?;
        if self.size.is_some() || self.part.is_stream() {
            return Ok(());
        }
        let cut = self.part.file().set_len(self.checkpoint.ranges().end());
        let path = || self.part.path().to_owned();
        cut.map_err(|source| OutputError::Write { operation: "cut", path: path(), source })
    }

    /// Reads bytes that have been written, in this run or before, by whichever writer.
    ///
    /// # Errors
    /// `InvalidInput` where some byte of the range has not been written; else what the kernel says of the file.
    pub fn read_at(&self, range: ByteRange) -> io::Result<Vec<u8>> {
        if !self.checkpoint.covers(range) {
            let message = format!("{range} of {} are not written", self.part.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut content = vec![0; range.len().as_usize()];
        self.part.file().read_exact_at(&mut content, range.start())?;
        Ok(content)
    }

    /// Makes the file durable and gives it its final name; `replace` lets it take another file's place.
    ///
    /// # Errors
    /// [`PipelineError`]; what was received then stays. [`PipelineError::Hole`] where a byte has not been written, and
    /// [`PipelineError::Failed`] after any failure, a panic included: a final name never stands over a hole.
    pub fn finish(&self, replace: bool) -> Result<Finished, PipelineError> {
        self.check_complete()?;
        self.check_part(true)?;
        Ok(self.part.finish(replace)?)
    }

    /// Checks that every byte has been written: up to the file's size, or up to the last byte of a file whose
    /// size is known only at its end.
    fn check_complete(&self) -> Result<(), PipelineError> {
        let path = || self.part.path().to_owned();
        if self.backlog.has_failed() || !self.backlog.is_empty() {
            return Err(PipelineError::Failed(path()));
        }
        let ranges = self.checkpoint.ranges();
        let end = self.size.map_or_else(|| ranges.end(), Bytes::get);
        let gaps = ranges.gaps(ByteRange::new(0, end));
        gaps.first().map_or(Ok(()), |first| {
            Err(PipelineError::Hole { path: path(), lacking: gaps.len(), first: *first })
        })
    }

    /// Returns the partial file.
    pub fn part(&self) -> &PartFile {
        &self.part
    }

    /// Returns the journal by which the next run identifies the file; `None` where it cannot be resumed.
    pub fn journal(&self) -> Option<Journal> {
        self.journal.as_ref().map(|journal| lock(journal).clone())
    }

    /// Adds a source to the journal, which is written at the next checkpoint; does nothing where there is no journal.
    pub fn add_source(&self, source: JournalSource) {
        if let Some(journal) = &self.journal {
            lock(journal).add_source(source);
            self.checkpoint.journal_changed();
        }
    }

    /// Notes in the journal that the complete file does not have this checksum; does nothing where there is no journal.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn refute(&self, checksum: Checksum) -> Result<(), OutputError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        lock(journal).set_refuted(Some(checksum));
        let stored = self.store(&self.checkpoint.ranges());
        stored.map_err(|source| self.journal_failed("write", source))
    }

    /// Returns the file's size, where it is known.
    pub fn size(&self) -> Option<Bytes> {
        self.size
    }

    /// Returns the ranges of the file that have been handed to the kernel, in this run or before.
    pub fn written_ranges(&self) -> RangeSet {
        self.checkpoint.ranges()
    }

    /// Returns the CPU time of the writers so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.cpu.total()
    }

    /// Returns what the busiest writer did since the last call; for one caller.
    pub(crate) fn take_busiest_writer(&self) -> CoreTimes {
        self.cpu.take_busiest()
    }

    /// Returns how many bytes were committed at the start.
    pub fn resumed(&self) -> Bytes {
        self.resumed
    }

    /// Returns how much of the file has been handed to the kernel, in this run or before.
    pub fn written(&self) -> Bytes {
        self.checkpoint.written()
    }

    /// Returns whether all of the file has been handed to the kernel; false where its size is unknown.
    pub fn is_complete(&self) -> bool {
        self.size.is_some_and(|size| self.checkpoint.covers(ByteRange::with_len(0, size)))
    }

    /// Returns whether the next run can resume what is there.
    pub fn is_resumable(&self) -> bool {
        self.journal.is_some() && self.written() > Bytes::ZERO && !self.part_changed.load(Ordering::SeqCst)
    }

    /// Returns the application buffer.
    pub fn pool(&self) -> &SegmentPool {
        &self.pool
    }
}
