//! Hashes written bytes in the order of the file, following the writers.
//!
//! ```text
//!  writers --segment, once written--> parked, where it is next or nearly so --> digest --> segment pool
//!     '--------------------------> file --what was not parked, while the device is idle--> digest
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::telemetry::Segments;
use longhaul_core::units::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Advice, fadvise};

use crate::cancel::Cancel;
use crate::digest::{FileDigests, PrefixDigest, WantedDigests};
use crate::sink::segment_pool::Segment;
use crate::tree_digest::TreeDigest;

/// The number of written bytes after a piece that are read ahead into the page cache: a few
/// requests keep a device busy.
const AHEAD: Bytes = Bytes::mib(4);
/// The bytes read from the file at once: an aligned block.
const READ_SIZE: Bytes = Bytes::mib(1);
/// The interval of checks for an idle device, and for out-of-order ranges that can be read.
const PARKED_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The divisor of the application buffer that may be parked for the digest: the four writers of
/// Direct I/O finish out of order.
const PARKED_SHARE: u64 = 4;
/// The maximum time that a segment is parked while bytes before it are missing: those may wait for
/// its memory when other transfers start and the pool's share shrinks.
const MAX_PARKED_TIME: Duration = Duration::from_secs(1);
/// The nice value, which gives a tenth of the scheduler's weight of a writer.
const NICE: i32 = 10;

/// The digests that a pipeline computes while it writes.
#[derive(Debug)]
pub(super) struct HashFollower {
    wanted: WantedDigests,
    /// The tree of BLAKE3, to which the writers add blocks.
    pub(super) tree: Option<Arc<TreeDigest>>,
    /// The digests that depend on the order of the file. Locked while bytes are hashed, so that
    /// [`forget`](Self::forget) waits.
    in_order: Mutex<PrefixDigest>,
    /// The bytes hashed by `in_order`.
    hashed: AtomicU64,
    parked: Mutex<Parked>,
    changed: Condvar,
    /// The bytes read from the file because they were not hashed from memory.
    read_back: AtomicU64,
}

#[derive(Debug, Default)]
struct Parked {
    /// Written segments, keyed by start offset.
    segments: BTreeMap<u64, ParkedSegment>,
    /// Whether [`HashFollower::run`] takes the segments.
    running: bool,
}

#[derive(Debug)]
struct ParkedSegment {
    segment: Segment,
    /// The memory of the application buffer held, independent of the bytes filled.
    memory: Bytes,
    since: Instant,
}

/// A round of writing, during which segments are parked. Owned by the thread of
/// [`HashFollower::run`].
///
/// Ends when dropped, even if the thread did not start or panicked: parked segments would never be
/// freed.
#[must_use = "segments are parked only until it is dropped"]
pub(super) struct HashRound<'a>(&'a HashFollower);

impl Drop for HashRound<'_> {
    fn drop(&mut self) {
        let mut parked = self.0.parked.lock();
        parked.running = false;
        parked.segments.clear();
    }
}

impl HashFollower {
    /// Creates a follower of zero bytes; the writers add to `tree`, and the `wanted` digests are
    /// computed in order.
    pub(super) fn new(wanted: WantedDigests, tree: Option<Arc<TreeDigest>>) -> Self {
        Self {
            wanted,
            tree,
            in_order: Mutex::new(PrefixDigest::new(wanted)),
            hashed: AtomicU64::new(0),
            parked: Mutex::default(),
            changed: Condvar::new(),
            read_back: AtomicU64::new(0),
        }
    }

    /// Returns the digests computed in order.
    pub(super) fn in_order(&self) -> WantedDigests {
        self.wanted
    }

    /// Returns the bytes of the file hashed in order.
    #[cfg(test)]
    pub(super) fn hashed(&self) -> u64 {
        self.hashed.load(Ordering::Relaxed)
    }

    /// Returns the bytes read from the file.
    #[cfg(test)]
    pub(super) fn bytes_read_back(&self) -> u64 {
        self.read_back.load(Ordering::Relaxed)
    }

    /// Starts a round of writing, the first or another one after [`Self::end`].
    pub(super) fn begin(&self) -> HashRound<'_> {
        self.parked.lock().running = true;
        HashRound(self)
    }

    /// Makes [`Self::run`] hash parked segments and end.
    pub(super) fn end(&self) {
        self.parked.lock().running = false;
        self.changed.notify_all();
    }

    /// Returns whether [`Self::run`] has work if these ranges are written at the start.
    pub(super) fn has_work_behind_writers(&self, written: &RangeSet) -> bool {
        let lacks = |tree: &Arc<TreeDigest>| tree.missing_in(written, READ_SIZE).is_some();
        !self.wanted.is_empty() || self.tree.as_ref().is_some_and(lacks)
    }

    /// Takes a written segment: parks it if it is the next or nearly so, else frees it.
    ///
    /// `app_buffer` returns the segment usage of the application buffer.
    pub(super) fn offer(&self, segment: Segment, app_buffer: impl Fn() -> Segments) {
        if self.wanted.is_empty() {
            return;
        }
        let (range, hashed) = (segment.range(), self.hashed.load(Ordering::Relaxed));
        if range.start() < hashed {
            // Received again: the later bytes count.
            return self.forget(range);
        }
        let app_buffer = app_buffer();
        let most = Bytes::new(app_buffer.capacity().get() / PARKED_SHARE);
        // A partly filled segment occupies as much memory as a full one.
        let memory = app_buffer.size.max(range.len());
        let mut parked = self.parked.lock();
        let held: u64 = parked.segments.values().map(|parked| parked.memory.get()).sum();
        if parked.running && range.end() - hashed <= most.get() && held + memory.get() <= most.get() {
            parked.segments.insert(range.start(), ParkedSegment { segment, memory, since: Instant::now() });
            self.changed.notify_one();
        }
    }

    /// Hashes the next bytes of a stream that is written in order.
    pub(super) fn hash_next(&self, bytes: &[u8]) {
        if !self.wanted.is_empty() {
            self.update(&mut self.in_order.lock(), bytes);
        }
    }

    /// Returns the digests of the bytes hashed in order so far.
    pub(super) fn so_far(&self) -> FileDigests {
        self.in_order.lock().digests()
    }

    /// Drops the hashes of `range`, which was removed from the written ranges, and everything that
    /// depends on them.
    pub(super) fn forget(&self, range: ByteRange) {
        let mut in_order = self.in_order.lock();
        if let Some(tree) = &self.tree {
            tree.forget(range);
        }
        self.parked.lock().segments.clear();
        if range.start() < in_order.hashed() {
            *in_order = PrefixDigest::new(self.wanted);
            self.hashed.store(0, Ordering::Relaxed);
        }
    }

    /// Hashes until [`Self::end`]. Reads from the file only while `is_idle` reports an idle device;
    /// `written` returns the written ranges.
    ///
    /// # Errors
    /// The kernel's error on the file. Earlier hashes stay valid.
    pub(super) fn run(
        &self,
        file: &File,
        written: impl Fn() -> RangeSet,
        is_idle: impl Fn() -> bool,
    ) -> io::Result<()> {
        // Linux applies the call to the calling thread. A failure only leaves the thread its usual
        // priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        self.follow(PieceReader::new(file), written, is_idle)
    }

    fn follow(
        &self,
        mut reader: PieceReader<'_>,
        written: impl Fn() -> RangeSet,
        is_idle: impl Fn() -> bool,
    ) -> io::Result<()> {
        loop {
            let running = self.parked.lock().running;
            let may_read = running && is_idle();
            if self.hash_parked() {
                continue;
            }
            self.parked.lock().segments.retain(|_, parked| parked.since.elapsed() < MAX_PARKED_TIME);
            if may_read && self.hash_written(&mut reader, &written)? {
                continue;
            }
            // The tree already covers an earlier run: the writers add the rest.
            if !running || (may_read && self.wanted.is_empty()) {
                return Ok(());
            }
            let nothing_new = |parked: &mut Parked| parked.running && !self.has_next(parked);
            self.changed.wait_while_for(&mut self.parked.lock(), nothing_new, PARKED_CHECK_INTERVAL);
        }
    }

    /// Returns the digests of the file's first `end` bytes, all of which are written; `Ok(None)` if
    /// cancelled.
    ///
    /// # Errors
    /// The kernel's error on the file.
    pub(super) fn finish(&self, file: &File, end: Bytes, cancel: &Cancel) -> io::Result<Option<FileDigests>> {
        // All bytes are in the file, so parked segments are not needed.
        self.parked.lock().segments.clear();
        let mut reader = PieceReader::new(file);
        let written: RangeSet = [ByteRange::with_len(0, end)].into_iter().collect();
        while self.in_order.lock().hashed() < end.get() {
            if cancel.is_cancelled() {
                return Ok(None);
            }
            self.hash_written(&mut reader, || written.clone())?;
        }
        tracing::debug!(bytes = self.read_back.load(Ordering::Relaxed), "read from the file for its digest");
        Ok(Some(self.in_order.lock().digests()))
    }

    fn has_next(&self, parked: &Parked) -> bool {
        let first = parked.segments.first_key_value();
        first.is_some_and(|(start, _)| *start <= self.hashed.load(Ordering::Relaxed))
    }

    /// Hashes the next parked segment; returns whether there was one.
    fn hash_parked(&self) -> bool {
        let mut in_order = self.in_order.lock();
        let next = {
            let mut parked = self.parked.lock();
            if self.has_next(&parked) { parked.segments.pop_first() } else { None }
        };
        let Some((start, ParkedSegment { segment, .. })) = next else { return false };
        // The start of the segment may already be hashed from the file.
        let known = usize::try_from(in_order.hashed() - start).unwrap_or(usize::MAX);
        self.update(&mut in_order, segment.data().get(known..).unwrap_or_default());
        true
    }

    /// Hashes a written range that was not hashed from memory; returns whether there was one.
    fn hash_written(&self, reader: &mut PieceReader<'_>, written: impl Fn() -> RangeSet) -> io::Result<bool> {
        let mut in_order = self.in_order.lock();
        // Read under the lock: a forgotten range is removed from the written ranges before it is
        // removed from the digests.
        let written = written();
        let hashed = in_order.hashed();
        let stretch = written.iter().find(|range| range.start() <= hashed && hashed < range.end());
        if let Some(stretch) = stretch.filter(|_| !self.wanted.is_empty()) {
            let parked = self.parked.lock().segments.first_key_value().map(|(start, _)| *start);
            let end = (hashed + 1).next_multiple_of(READ_SIZE.get()).min(stretch.end());
            let part = ByteRange::new(hashed, end.min(parked.unwrap_or(end)));
            self.update(&mut in_order, self.read(reader, part, &written)?);
            return Ok(true);
        }
        let Some(tree) = &self.tree else { return Ok(false) };
        let Some(part) = tree.missing_in(&written, READ_SIZE) else { return Ok(false) };
        tree.add(part.start(), self.read(reader, part, &written)?);
        Ok(true)
    }

    fn read<'b>(
        &self,
        reader: &'b mut PieceReader<'_>,
        part: ByteRange,
        written: &RangeSet,
    ) -> io::Result<&'b [u8]> {
        self.read_back.fetch_add(part.len().get(), Ordering::Relaxed);
        reader.read(part, written)
    }

    fn update(&self, in_order: &mut PrefixDigest, bytes: &[u8]) {
        in_order.update(bytes);
        self.hashed.store(in_order.hashed(), Ordering::Relaxed);
    }
}

/// Reads pieces of a file that is being written. Bytes after a piece must not enter the page cache
/// before they are written.
struct PieceReader<'a> {
    file: &'a File,
    buffer: Vec<u8>,
}

impl<'a> PieceReader<'a> {
    /// Wraps an open file description without other readers.
    fn new(file: &'a File) -> Self {
        // Disables read-ahead by the kernel. The advice is a hint, which a file system may ignore.
        let _ = fadvise(file, 0, None, Advice::Random);
        Self { file, buffer: vec![0; READ_SIZE.as_usize()] }
    }

    /// Reads a range of at most [`READ_SIZE`], and starts reading the following ranges of
    /// `written`.
    fn read(&mut self, part: ByteRange, written: &RangeSet) -> io::Result<&[u8]> {
        let advise = |range: ByteRange, advice| {
            if let Some(length) = NonZeroU64::new(range.len().get()) {
                let _ = fadvise(self.file, range.start(), Some(length), advice);
            }
        };
        let next = ByteRange::with_len(part.end(), AHEAD);
        if written.contains(next) {
            advise(next, Advice::WillNeed);
        }
        let bytes = &mut self.buffer[..part.len().as_usize()];
        self.file.read_exact_at(bytes, part.start())?;
        advise(part, Advice::DontNeed);
        Ok(bytes)
    }
}
