//! What the threads of one transfer share.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, JobObserver};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::schedule::WorkerId;
use longhaul_core::telemetry::{PageCache, Sockets, StreamSample};
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::error::TransferError;
use super::shared_schedule::SharedSchedule;
use super::stream_handle::StreamHandle;
use crate::cancel::Cancel;
use crate::job_cpu::JobCpu;
use crate::open_sockets::OpenSockets;
use crate::rate_limit::{RateLimit, wait_for_limit};
use crate::sink::pipeline::Pipeline;
use crate::threads::{add, lock};

/// What the streams of a transfer share, whichever way its bytes go.
pub(crate) struct TransferState<'a> {
    pub(crate) start: Instant,
    observer: JobObserver<'a>,
    /// Set when the user cancels, and when any thread fails for good.
    pub(crate) stop: Cancel,
    /// Set with `stop`, and once every byte is there; replaced where bytes are to be fetched again.
    finished: Mutex<Cancel>,
    pub(crate) schedule: SharedSchedule,
    limit: Option<RateLimit>,
    received: AtomicU64,
    /// The streams at work, draining ones included, of all sources.
    streams: Mutex<Vec<Arc<StreamHandle>>>,
    /// Their number, which streams read at every segment.
    running: AtomicUsize,
    next_stream: AtomicUsize,
    /// Sources that are being described and compared: their streams may still take over from others.
    joining: AtomicUsize,
    /// The source that has joined while nothing was there to compare it with: no second one may while it is in use.
    joined_alone: Mutex<Option<usize>>,
    pub(crate) waits: Waits,
    pub(crate) cpu: JobCpu,
    /// One for each source.
    pub(crate) sources: Vec<SourceProgress>,
    /// The latest count of the output file's pages, where they are counted.
    pub(crate) pages: Mutex<Option<PageCache>>,
    failure: Mutex<Option<TransferError>>,
    /// Why the last stream to give up did.
    given_up: Mutex<Option<TransferError>>,
}

/// What the streams of one source have done so far.
#[derive(Default)]
pub(crate) struct SourceProgress {
    received: AtomicU64,
    pub(crate) sockets: OpenSockets,
    /// How many streams the source should have.
    pub(crate) wanted: AtomicUsize,
    /// The highest number of streams that was ever wanted.
    most_wanted: AtomicUsize,
    /// Whether one worker moves bytes over all of its connections.
    multiplexed: AtomicBool,
    /// The highest rate of all its streams together, in bits per second.
    path_rate: AtomicU64,
    /// Whether the source has been shown to have the file.
    usable: AtomicBool,
    /// Whether the source is of no use in a later round either.
    failed: AtomicBool,
    /// What came from this source, for finding out which source sent wrong bytes.
    delivered: Mutex<RangeSet>,
}

/// For how long streams stood still, in nanoseconds, summed over the streams.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) writer: AtomicU64,
    pub(crate) limit: AtomicU64,
}

impl Waits {
    /// Returns for how long streams have stood still.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.writer.load(Ordering::Relaxed) + self.limit.load(Ordering::Relaxed))
    }
}

impl SourceProgress {
    /// Returns the bytes received from this source.
    pub(crate) fn received(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Sets how many streams the source should have.
    pub(crate) fn set_wanted(&self, streams: usize) {
        self.wanted.store(streams, Ordering::Relaxed);
        self.most_wanted.fetch_max(streams, Ordering::Relaxed);
    }

    /// Returns how many streams the source should have.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Notes whether one worker moves bytes over all connections of this source.
    pub(crate) fn set_multiplexed(&self, multiplexed: bool) {
        self.multiplexed.store(multiplexed, Ordering::Relaxed);
    }

    /// Returns how many connections so many workers of this source have, or will have.
    pub(crate) fn connections(&self, workers: usize) -> usize {
        if self.multiplexed.load(Ordering::Relaxed) && workers > 0 { self.wanted() } else { workers }
    }

    /// Notes the rate of all streams of this source together.
    pub(crate) fn note_rate(&self, rate: Rate) {
        self.path_rate.fetch_max(rate.as_bits_per_sec(), Ordering::Relaxed);
    }

    /// Returns a stream's share of what the path has in flight; zero where the source never had several streams.
    pub(crate) fn window_share(&self, rtt: Rtt) -> Bytes {
        if self.most_wanted.load(Ordering::Relaxed) <= 1 {
            return Bytes::ZERO;
        }
        let rate = Rate::bits_per_sec(self.path_rate.load(Ordering::Relaxed));
        Bytes::new(rate.bdp(rtt).get() / self.wanted().max(1) as u64)
    }

    /// Notes whether the source may be used: it has been shown to have the file, and has not failed since.
    pub(crate) fn set_usable(&self, usable: bool) {
        self.usable.store(usable, Ordering::Relaxed);
    }

    /// Notes that the source cannot deliver the file: it is down, or has another one.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the source cannot deliver the file.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns whether the source may be used.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    /// Notes a range that this source has delivered.
    pub(super) fn note_delivered(&self, range: ByteRange) {
        lock(&self.delivered).insert(range);
    }

    /// Returns all ranges that this source has delivered.
    pub(crate) fn delivered(&self) -> RangeSet {
        lock(&self.delivered).clone()
    }

    /// Forgets that this source has delivered `range`, once that is to be fetched again.
    pub(crate) fn forget_delivered_in(&self, range: ByteRange) {
        lock(&self.delivered).remove(range);
    }

    /// Forgets what this source has delivered, once it was proved wrong or is fetched again.
    pub(crate) fn forget_delivered(&self) -> RangeSet {
        std::mem::take(&mut *lock(&self.delivered))
    }
}

impl<'a> TransferState<'a> {
    pub(crate) fn new(
        start: Instant,
        observer: JobObserver<'a>,
        stop: Cancel,
        schedule: SharedSchedule,
        limit: Option<RateLimit>,
        sources: usize,
    ) -> Self {
        Self {
            start,
            observer,
            finished: Mutex::new(stop.child()),
            stop,
            schedule,
            limit,
            received: AtomicU64::new(0),
            streams: Mutex::default(),
            running: AtomicUsize::new(0),
            next_stream: AtomicUsize::new(0),
            joining: AtomicUsize::new(0),
            joined_alone: Mutex::default(),
            waits: Waits::default(),
            cpu: JobCpu::default(),
            sources: (0..sources).map(|_| SourceProgress::default()).collect(),
            pages: Mutex::default(),
            failure: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// Reports an event.
    pub(crate) fn emit(&self, event: &Event) {
        self.observer.on(self.start.elapsed(), event);
    }

    /// Ends the transfer with `error`, unless an earlier one has.
    pub(crate) fn fail(&self, error: TransferError) {
        lock(&self.failure).get_or_insert(error);
        self.stop.cancel();
    }

    /// Takes the error that ended the transfer.
    pub(crate) fn take_failure(&self) -> Option<TransferError> {
        lock(&self.failure).take()
    }

    /// Keeps why a stream gave up: the transfer's error where in the end no stream is left.
    pub(crate) fn note_given_up(&self, error: TransferError) {
        lock(&self.given_up).replace(error);
    }

    /// Takes why the last stream to give up did.
    pub(crate) fn take_given_up(&self) -> Option<TransferError> {
        lock(&self.given_up).take()
    }

    /// Makes handles for streams of a source; no number is used twice in a transfer.
    pub(crate) fn register(&self, source: usize, count: usize) -> Vec<Arc<StreamHandle>> {
        let mut streams = lock(&self.streams);
        let first = self.next_stream.fetch_add(count, Ordering::Relaxed);
        let handle = |id| Arc::new(StreamHandle::new(id, source, &self.stop));
        let handles: Vec<_> = (first..first + count).map(handle).collect();
        streams.extend(handles.iter().cloned());
        self.running.store(streams.len(), Ordering::Relaxed);
        handles
    }

    /// Removes a stream that has ended, or will at once.
    pub(crate) fn unregister(&self, stream: WorkerId) {
        let mut streams = lock(&self.streams);
        streams.retain(|other| other.id != stream);
        self.running.store(streams.len(), Ordering::Relaxed);
    }

    /// Returns the streams at work.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamHandle>> {
        lock(&self.streams).clone()
    }

    /// Removes a stream unless no other is left to do its work; returns whether it may end.
    pub(crate) fn leave_to_others(&self, stream: WorkerId) -> bool {
        let mut streams = lock(&self.streams);
        let others = streams.iter().any(|other| other.id != stream && !other.is_draining())
            || self.joining.load(Ordering::Relaxed) > 0;
        if others {
            streams.retain(|other| other.id != stream);
            self.running.store(streams.len(), Ordering::Relaxed);
        }
        others
    }

    /// Counts a source that is being described and compared, or no longer.
    pub(crate) fn set_joining(&self, joins: bool) {
        let change = if joins { AtomicUsize::fetch_add } else { AtomicUsize::fetch_sub };
        change(&self.joining, 1, Ordering::Relaxed);
    }

    /// Returns whether another source delivers, or is being compared.
    pub(crate) fn has_other_source(&self, source: usize) -> bool {
        let delivers = |(other, progress): (usize, &SourceProgress)| other != source && progress.is_usable();
        self.joining.load(Ordering::Relaxed) > 0 || self.sources.iter().enumerate().any(delivers)
    }

    /// Returns how many streams are at work, draining ones included.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Returns how many connections the streams at work have, or will have, of all sources.
    pub(crate) fn connections(&self) -> usize {
        let streams = lock(&self.streams);
        let of = |source: usize| streams.iter().filter(|stream| stream.source == source).count();
        self.sources.iter().enumerate().map(|(source, progress)| progress.connections(of(source))).sum()
    }

    /// Returns a number that no other connection of the transfer has.
    pub(super) fn next_number(&self) -> usize {
        self.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends what a stream waits for now.
    pub(crate) fn interrupt(&self, stream: WorkerId) {
        lock(&self.streams).iter().filter(|other| other.id == stream).for_each(|other| other.interrupt());
    }

    /// Returns the flag that is raised once nothing is left to fetch.
    pub(crate) fn finished(&self) -> Cancel {
        lock(&self.finished).clone()
    }

    /// Lowers that flag: some bytes are to be fetched again.
    pub(crate) fn resume(&self) {
        *lock(&self.finished) = self.stop.child();
        *lock(&self.joined_alone) = None;
    }

    /// Ends what every stream and mirror waits for: nothing is left to do.
    pub(crate) fn interrupt_all(&self) {
        self.finished().cancel();
        lock(&self.streams).iter().for_each(|stream| stream.interrupt());
    }

    /// Returns the bytes moved so far: read from sockets, or acknowledged by the peer.
    pub(crate) fn received(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Returns how much is still to be moved.
    pub(crate) fn left(&self) -> Bytes {
        self.schedule.with(|schedule, _| schedule.left())
    }

    /// Reads every socket; returns each stream's sample, and all of them together.
    pub(crate) fn read_sockets(&self) -> (Vec<StreamSample>, Sockets) {
        OpenSockets::read_all(self.sources.iter().map(|source| &source.sockets))
    }

    /// Returns whether `--limit` bounds the rate.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.as_ref().and_then(RateLimit::rate).is_some()
    }

    /// Returns how much of `spare` to read at once: all of it, or little enough for an even rate under `--limit`.
    pub(super) fn read_at_most(&self, spare: usize) -> usize {
        self.limit.as_ref().map_or(spare, |limit| limit.read_at_most(spare))
    }

    /// Accounts for bytes read from a source's socket; waits as long as `--limit` asks for.
    pub(super) fn add_received(&self, source: usize, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.sources[source].received.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(limit) = &self.limit {
            let wait = limit.read(Bytes::new(bytes as u64));
            wait_for_limit(&self.stop, wait, |waited| add(&self.waits.limit, waited));
        }
    }
}

/// A transfer into a file: what its streams share, and the way to the disk.
pub(crate) struct FileTransfer<'a> {
    streams: TransferState<'a>,
    pub(crate) pipeline: Pipeline,
}

impl<'a> FileTransfer<'a> {
    pub(crate) fn new(streams: TransferState<'a>, pipeline: Pipeline) -> Self {
        Self { streams, pipeline }
    }

    /// Lets one mirror join without a comparison, where no other source is at work and nothing that it could be compared with is
    /// there; returns whether it may.
    pub(crate) fn may_join_alone(&self, source: usize) -> bool {
        // What a stream has handed over before it ended counts as there.
        let alone = self.running() == 0 && self.pipeline.drain();
        if !alone || self.pipeline.written() > Bytes::ZERO {
            return false;
        }
        let mut joined_alone = lock(&self.joined_alone);
        let free = joined_alone.is_none_or(|joined| self.sources[joined].has_failed());
        if free {
            *joined_alone = Some(source);
        }
        free
    }
}

impl<'a> Deref for FileTransfer<'a> {
    type Target = TransferState<'a>;

    fn deref(&self) -> &TransferState<'a> {
        &self.streams
    }
}
