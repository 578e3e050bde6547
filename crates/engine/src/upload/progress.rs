//! The progress of an upload, shared by its threads.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, JobObserver};
use longhaul_core::failure::Failure;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::telemetry::{Segments, Snapshot, Sockets, StreamSample};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::tcp_info;
use parking_lot::{Mutex, MutexGuard};

use super::error::UploadError;
use super::hashing::Hashing;
use super::request::PutRequest;
use crate::cancel::Cancel;
use crate::open_sockets::OpenSockets;
use crate::send::{Reader, RingUsage, SourceFile};
use crate::transfer::{SharedSchedule, TransferProgress};
use crate::tree_digest::TreeDigest;

/// State shared by the sender, the hasher, the monitor and the sampler.
pub(super) struct UploadProgress<'a> {
    /// The progress of the streams; a single request for the whole file counts as the first stream.
    pub(super) transfer: TransferProgress<'a>,
    /// Raised when the upload ends, by the user or with its result. A failure of streams stops only
    /// their round.
    pub(super) cancel: Cancel,
    pub(super) size: Bytes,
    body: Mutex<BodyProgress>,
    ranges: Mutex<SentRanges>,
    /// The offset up to which the file is hashed without a gap.
    pub(super) hashed: AtomicU64,
    /// The digest, if it is computed while the file is sent.
    pub(super) hashing: Mutex<Option<Hashing>>,
    /// Whether the server can resume; not set before its answer.
    pub(super) resumable: OnceLock<bool>,
    /// The tree of the digest, if blocks are hashed by their position as they are sent.
    pub(super) tree: OnceLock<Arc<TreeDigest>>,
}

/// The ranges that are sent.
#[derive(Default)]
struct SentRanges {
    /// The schedule of the ranges that are being sent.
    schedule: Option<Arc<SharedSchedule>>,
    /// The ranges that the server held, and those passed to sockets since.
    readable: RangeSet,
    /// The ranges that the server held, and those confirmed since.
    confirmed: RangeSet,
    /// The bytes passed to sockets.
    given: Bytes,
}

/// The part of the file sent by the current connection.
#[derive(Default)]
struct BodyProgress {
    /// The bytes in the ranges that the server first reported.
    resumed: Option<Bytes>,
    /// The part's offset in the file.
    start: Bytes,
    /// The bytes of the part passed to the kernel.
    sent: Bytes,
    /// The bytes acknowledged before the part.
    acked_before: Bytes,
    /// The bytes acknowledged on earlier connections, whether or not the server kept them.
    moved_before: Bytes,
    ring: Option<RingUsage>,
}

impl BodyProgress {
    fn acked(&self, sockets: &Sockets) -> Bytes {
        // TLS adds bytes to those of the file.
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
        Self {
            transfer: TransferProgress::new(start, observer, request.transfer.limit.clone(), 1),
            cancel,
            size,
            body: Mutex::default(),
            ranges: Mutex::default(),
            hashed: AtomicU64::new(0),
            hashing: Mutex::default(),
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
        if self.cancel.is_cancelled() { Err(Failure::interrupted().into()) } else { Ok(()) }
    }

    /// Records the connection of the only stream.
    pub(super) fn connected(&self, socket: &TcpStream, peer: SocketAddr) {
        let rtt = tcp_info::read(socket).ok().and_then(|info| info.rtt());
        self.sockets().add(0, socket);
        self.emit(&Event::Connected { stream: 0, peer, rtt });
    }

    /// Records the end of the connection of the only stream.
    pub(super) fn disconnected(&self) {
        self.sockets().remove(0);
        self.emit(&Event::Closed { stream: 0 });
    }

    /// Sends an event to the observer.
    pub(super) fn emit(&self, event: &Event) {
        self.transfer.emit(event);
    }

    /// Returns the ranges that the server held, and those read for sending since.
    pub(super) fn readable(&self) -> RangeSet {
        self.ranges.lock().readable.clone()
    }

    /// Counts all bytes as hashed, if no digest is computed.
    pub(super) fn skip_hashing(&self) {
        self.hashed.store(self.size.get(), Ordering::Relaxed);
    }

    /// Records the ranges that the server holds; the first call emits [`Event::Opened`].
    pub(super) fn found(&self, held: &RangeSet, source: &SourceFile, reader: Reader) {
        let resumed = held.total();
        held.iter().for_each(|range| self.ranges.lock().readable.insert(range));
        let mut body = self.end_part(prefix(held, self.size));
        if body.resumed.is_none() {
            body.resumed = Some(resumed);
            drop(body);
            let path = source.path().clone();
            let writer = reader.name().into();
            self.emit(&Event::Opened { path, size: Some(self.size), resumed, resumable: true, writer });
        }
    }

    /// Starts the part of the file at `start`.
    pub(super) fn begin_part(&self, start: Bytes, ring: Option<RingUsage>) {
        self.ranges.lock().schedule = None;
        self.end_part(start).ring = ring;
    }

    /// Adds up the bytes moved by the last part; the next part starts at `start`.
    fn end_part(&self, start: Bytes) -> MutexGuard<'_, BodyProgress> {
        let sockets = self.sockets().read().1;
        let mut body = self.body.lock();
        let moved = body.acked(&sockets);
        body.moved_before += moved;
        (body.start, body.sent, body.acked_before) = (start, Bytes::ZERO, sockets.counters.acked);
        body.ring = None;
        body
    }

    /// Records that the connection has taken `sent` bytes of the part (under TLS up to 256 KiB of
    /// them are not encrypted yet); waits as `--limit` requires.
    pub(super) fn sent(&self, sent: Bytes) {
        let mut body = self.body.lock();
        let more = sent - body.sent;
        body.sent = sent;
        let part = ByteRange::with_len(body.start.get(), sent);
        drop(body);
        self.ranges.lock().readable.insert(part);
        self.transfer.wait_for_limit(more, &self.cancel);
    }

    /// Starts sending ranges by `schedule`, given the ranges that the server holds.
    pub(super) fn begin_ranges(&self, held: &RangeSet, schedule: Arc<SharedSchedule>) {
        let mut ranges = self.ranges.lock();
        (ranges.schedule, ranges.confirmed) = (Some(schedule), held.clone());
    }

    /// Records a part of a range passed to the kernel; waits as `--limit` requires.
    pub(super) fn range_sent(&self, part: ByteRange) {
        let mut ranges = self.ranges.lock();
        ranges.readable.insert(part);
        ranges.given += part.len();
        drop(ranges);
        self.transfer.wait_for_limit(part.len(), &self.cancel);
    }

    /// Records a range confirmed by the server; returns the offset up to which the server has the
    /// file without a gap.
    pub(super) fn range_confirmed(&self, range: ByteRange) -> Bytes {
        let mut ranges = self.ranges.lock();
        ranges.confirmed.insert(range);
        prefix(&ranges.confirmed, self.size)
    }

    /// Returns the bytes to send at once: `most`, or less for an even rate under `--limit`.
    pub(super) fn share(&self, most: Bytes) -> Bytes {
        Bytes::new(self.transfer.share(most.as_usize()) as u64)
    }

    /// Returns the offset up to which the senders have read the file without a gap.
    pub(super) fn read_so_far(&self) -> Bytes {
        prefix(&self.ranges.lock().readable, self.size)
    }

    /// Returns the bytes that an earlier run left on the server.
    pub(super) fn resumed(&self) -> Bytes {
        self.body.lock().resumed.unwrap_or_default()
    }

    /// Reads the totals and each connection's counters.
    pub(super) fn snapshot(&self) -> (Snapshot, Vec<StreamSample>) {
        let (streams, sockets) = self.sockets().read();
        let ranges = self.ranges.lock();
        let (left, given) = (ranges.schedule.as_ref().map(|schedule| schedule.left()), ranges.given);
        drop(ranges);
        let body = self.body.lock();
        let acked = body.acked(&sockets);
        let present = left.map_or((body.start + acked).min(self.size), |left| self.size - left);
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

    /// Returns the use of the ring, if the file is read through one.
    pub(super) fn ring(&self) -> Option<Segments> {
        self.body.lock().ring.as_ref().map(RingUsage::read)
    }

    /// Returns the number of streams; if it was tuned, its last value.
    pub(super) fn streams(&self) -> usize {
        let source = &self.transfer.sources[0];
        source.sockets.most().min(source.wanted()).max(1)
    }

    /// Returns the goodput of this run over `time`.
    pub(super) fn goodput(&self, time: Duration) -> Rate {
        Rate::over(self.size - self.resumed(), time)
    }
}

/// Returns the bytes from the start of a file of `size` bytes that a set covers without a gap.
pub(super) fn prefix(set: &RangeSet, size: Bytes) -> Bytes {
    set.gaps(ByteRange::with_len(0, size)).first().map_or(size, |gap| Bytes::new(gap.start()))
}
