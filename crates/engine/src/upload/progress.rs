//! The progress of an upload, as its threads share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, JobObserver};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::schedule::{Blocks, RangeScheduler};
use longhaul_core::telemetry::{Segments, Snapshot, Sockets, StreamSample};
use longhaul_core::units::{Bytes, Rate};

use super::error::UploadError;
use super::request::PutRequest;
use crate::cancel::Cancel;
use crate::open_sockets::OpenSockets;
use crate::passing_digest::PassingDigest;
use crate::rate_limit::{RateLimit, wait_for_limit};
use crate::send::{Reader, RingUsage, SourceFile};
use crate::source::http::HttpError;
use crate::threads::{add, lock};
use crate::transfer::{SharedSchedule, TransferState};

/// State shared by the sender, the hasher, the monitor and the sampler.
pub(super) struct UploadProgress<'a> {
    /// What the streams share; a single request for the whole file counts as the first of them.
    pub(super) transfer: TransferState<'a>,
    /// Raised when the upload ends: by the user, or with its result. Where streams fail only those of `transfer` stop.
    pub(super) cancel: Cancel,
    pub(super) size: Bytes,
    limiter: Option<RateLimit>,
    body: Mutex<BodyProgress>,
    ranges: Mutex<SentRanges>,
    /// How much of the file, from its start, has been read by the sender.
    read: AtomicU64,
    /// How much of the file has been hashed.
    pub(super) hashed: AtomicU64,
    resumable: OnceLock<bool>,
    /// The digest's tree, where what is sent is added to it by its place in the file.
    tree: OnceLock<Arc<PassingDigest>>,
}

/// The ranges that several streams send.
#[derive(Default)]
struct SentRanges {
    /// Whether they are being sent.
    active: bool,
    /// What the server held, and what has been given to sockets since.
    sent: RangeSet,
    /// What the server held, and what it has confirmed since.
    confirmed: RangeSet,
    /// How much sockets were given.
    given: Bytes,
}

/// The part of the file that the current connection sends.
#[derive(Default)]
struct BodyProgress {
    /// The first offset that the server has reported.
    resumed: Option<Bytes>,
    /// The part's offset in the file.
    start: Bytes,
    /// How much of the part the kernel has taken.
    sent: Bytes,
    /// How much the peer had acknowledged before the part.
    acked_before: Bytes,
    /// How much was acknowledged on earlier connections, whether or not the server has kept it.
    moved_before: Bytes,
    ring: Option<RingUsage>,
}

impl BodyProgress {
    fn acked(&self, sockets: &Sockets) -> Bytes {
        // TLS adds to the bytes of the file.
        (sockets.counters.acked - self.acked_before).min(self.sent)
    }
}

impl<'a> UploadProgress<'a> {
    pub(super) fn new(
        request: &PutRequest,
        start: Instant,
        observer: JobObserver<'a>,
        cancel: &Cancel,
        size: Bytes,
    ) -> Self {
        let cancel = cancel.child();
        let nothing = RangeScheduler::new(Blocks::new(Vec::new(), 1, false, Bytes::new(1)));
        let schedule = SharedSchedule::new(start, nothing);
        Self {
            transfer: TransferState::new(start, observer, cancel.child(), schedule, None, 1),
            cancel,
            size,
            limiter: request.limit.clone(),
            body: Mutex::default(),
            ranges: Mutex::default(),
            read: AtomicU64::new(0),
            hashed: AtomicU64::new(0),
            resumable: OnceLock::new(),
            tree: OnceLock::new(),
        }
    }

    /// Returns the sockets of the upload.
    pub(super) fn sockets(&self) -> &OpenSockets {
        &self.transfer.sources[0].sockets
    }

    /// Fails once the upload is cancelled.
    pub(super) fn check_cancel(&self) -> Result<(), UploadError> {
        if self.cancel.is_cancelled() { Err(HttpError::Cancelled.into()) } else { Ok(()) }
    }

    /// Sends an event to the observer.
    pub(super) fn emit(&self, event: &Event) {
        self.transfer.emit(event);
    }

    /// Remembers whether the server can resume.
    pub(super) fn set_resumable(&self, resumable: bool) {
        // It is set once.
        let _ = self.resumable.set(resumable);
    }

    /// Returns whether the server can resume; `None` before its answer.
    pub(super) fn resumable(&self) -> Option<bool> {
        self.resumable.get().copied()
    }

    /// Has what is read from now on added to a tree.
    pub(super) fn set_tree(&self, tree: Arc<PassingDigest>) {
        // There is one for an upload.
        let _ = self.tree.set(tree);
    }

    /// Returns the tree that what is read is added to.
    pub(super) fn tree(&self) -> Option<&Arc<PassingDigest>> {
        self.tree.get()
    }

    /// Returns what the server held, and what has been read to be sent since.
    pub(super) fn readable(&self) -> RangeSet {
        let ranges = lock(&self.ranges);
        let mut readable = if ranges.active { ranges.sent.clone() } else { RangeSet::new() };
        drop(ranges);
        readable.insert(ByteRange::with_len(0, self.read_so_far()));
        readable
    }

    /// Counts all as hashed, where no digest is computed.
    pub(super) fn skip_hashing(&self) {
        self.hashed.store(self.size.get(), Ordering::Relaxed);
    }

    /// Records what the server holds; the first time it emits [`Event::Opened`].
    pub(super) fn found(&self, held: &RangeSet, source: &SourceFile, reader: Reader) {
        let (resumed, offset) = (held.total(), prefix(held, self.size));
        self.read.fetch_max(offset.get(), Ordering::Relaxed);
        let mut body = self.end_part(offset);
        if body.resumed.is_none() {
            body.resumed = Some(resumed);
            drop(body);
            let path = source.path().clone();
            let writer = reader.name().into();
            self.emit(&Event::Opened { path, size: Some(self.size), resumed, resumable: true, writer });
        }
    }

    /// Begins the part of the file that starts at `start`.
    pub(super) fn begin_part(&self, start: Bytes, ring: Option<RingUsage>) {
        lock(&self.ranges).active = false;
        self.end_part(start).ring = ring;
    }

    /// Adds up what the last part has moved; the next one starts at `start`.
    fn end_part(&self, start: Bytes) -> MutexGuard<'_, BodyProgress> {
        let sockets = self.sockets().read().1;
        let mut body = lock(&self.body);
        let moved = body.acked(&sockets);
        body.moved_before += moved;
        (body.start, body.sent, body.acked_before) = (start, Bytes::ZERO, sockets.counters.acked);
        body.ring = None;
        body
    }

    /// Records how much of the part the kernel has taken; waits as `--limit` requires.
    pub(super) fn sent(&self, sent: Bytes) {
        let mut body = lock(&self.body);
        let more = sent - body.sent;
        body.sent = sent;
        self.read.fetch_max((body.start + sent).get(), Ordering::Relaxed);
        drop(body);
        self.wait_for_limit(more);
    }

    /// Waits as `--limit` requires after `more` bytes.
    fn wait_for_limit(&self, more: Bytes) {
        let Some(limiter) = &self.limiter else { return };
        let wait = limiter.read(more);
        wait_for_limit(&self.cancel, wait, |waited| add(&self.transfer.waits.limit, waited));
    }

    /// Begins to send what the server lacks over several streams.
    pub(super) fn begin_ranges(&self, held: &RangeSet) {
        let mut ranges = lock(&self.ranges);
        ranges.active = true;
        (ranges.sent, ranges.confirmed) = (held.clone(), held.clone());
    }

    /// Records a part of a range that the kernel has taken; waits as `--limit` requires.
    pub(super) fn range_sent(&self, part: ByteRange) {
        let mut ranges = lock(&self.ranges);
        ranges.sent.insert(part);
        ranges.given += part.len();
        self.read.fetch_max(prefix(&ranges.sent, self.size).get(), Ordering::Relaxed);
        drop(ranges);
        self.wait_for_limit(part.len());
    }

    /// Records a range that the server has confirmed; returns up to where it has the whole file.
    pub(super) fn range_confirmed(&self, range: ByteRange) -> Bytes {
        let mut ranges = lock(&self.ranges);
        ranges.confirmed.insert(range);
        prefix(&ranges.confirmed, self.size)
    }

    /// Returns how much to send at once: `most`, or less for an even rate under `--limit`.
    pub(super) fn share(&self, most: Bytes) -> Bytes {
        let even = |limiter: &RateLimit| Bytes::new(limiter.read_at_most(most.as_usize()) as u64);
        self.limiter.as_ref().map_or(most, even)
    }

    /// Returns how much of the file has been read by the sender.
    pub(super) fn read_so_far(&self) -> Bytes {
        Bytes::new(self.read.load(Ordering::Relaxed))
    }

    /// Returns how much an earlier run had left on the server.
    pub(super) fn resumed(&self) -> Bytes {
        lock(&self.body).resumed.unwrap_or_default()
    }

    /// Reads the totals and each connection's counters.
    pub(super) fn snapshot(&self) -> (Snapshot, Vec<StreamSample>) {
        let (streams, sockets) = self.sockets().read();
        let ranges = lock(&self.ranges);
        let (active, given) = (ranges.active, ranges.given);
        drop(ranges);
        let body = lock(&self.body);
        let acked = body.acked(&sockets);
        let present =
            if active { self.size - self.transfer.left() } else { (body.start + acked).min(self.size) };
        let moved_before = body.moved_before;
        let snapshot = Snapshot {
            present,
            received: moved_before + self.transfer.received() + acked,
            written: moved_before + given + body.sent,
            size: Some(self.size),
            sockets,
            segments: body.ring.as_ref().map(RingUsage::read).unwrap_or_default(),
            page_cache: None,
        };
        (snapshot, streams)
    }

    /// Returns the ring's use, where the file is read through one.
    pub(super) fn ring(&self) -> Option<Segments> {
        lock(&self.body).ring.as_ref().map(RingUsage::read)
    }

    /// Returns how many streams there were: where their number was controlled, the last one.
    pub(super) fn streams(&self) -> usize {
        let source = &self.transfer.sources[0];
        source.sockets.most().min(source.wanted()).max(1)
    }

    /// Returns the goodput of this run over `time`.
    pub(super) fn goodput(&self, time: Duration) -> Rate {
        Rate::over(self.size - self.resumed(), time)
    }
}

/// Returns how much of a file of `size` bytes a set covers from the start on without a gap.
pub(super) fn prefix(set: &RangeSet, size: Bytes) -> Bytes {
    set.gaps(ByteRange::with_len(0, size)).first().map_or(size, |gap| Bytes::new(gap.start()))
}
