//! The state shared by the threads of one transfer.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, JobObserver};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::telemetry::{Sockets, StreamSample};
use longhaul_core::units::{Bytes, Rate, Rtt};
use parking_lot::Mutex;

use super::error::TransferError;
use super::running_streams::RunningStreams;
use super::shared_schedule::SharedSchedule;
use crate::cancel::Cancel;
use crate::job_cpu::JobCpu;
use crate::open_sockets::OpenSockets;
use crate::rate_limit::{RateLimit, wait_for_limit};
use crate::threads::add;

/// The state shared by the streams of a transfer in either direction.
pub(crate) struct TransferState<'a> {
    pub(crate) start: Instant,
    observer: JobObserver<'a>,
    pub(crate) end: TransferEnd,
    pub(crate) schedule: SharedSchedule,
    limit: Option<RateLimit>,
    received: AtomicU64,
    pub(crate) running: RunningStreams,
    pub(crate) waits: Waits,
    pub(crate) cpu: JobCpu,
    /// The progress of each source.
    pub(crate) sources: Vec<SourceProgress>,
}

/// What ends a transfer: its cancellation, a failure, or that nothing is left to move.
pub(crate) struct TransferEnd {
    /// Raised when the user cancels, and on any permanent failure.
    pub(crate) stop: Cancel,
    /// Raised with `stop`, and once all bytes have arrived; replaced if bytes are to be fetched
    /// again.
    finished: Mutex<Cancel>,
    failure: Mutex<Option<TransferError>>,
    /// The error of the last stream that gave up.
    given_up: Mutex<Option<TransferError>>,
}

impl TransferEnd {
    fn new(stop: Cancel) -> Self {
        let finished = Mutex::new(stop.child());
        Self { stop, finished, failure: Mutex::default(), given_up: Mutex::default() }
    }

    /// Ends the transfer with `error`, unless it has failed already.
    pub(crate) fn fail(&self, error: TransferError) {
        self.failure.lock().get_or_insert(error);
        self.stop.cancel();
    }

    /// Takes the error that ended the transfer.
    pub(crate) fn take_failure(&self) -> Option<TransferError> {
        self.failure.lock().take()
    }

    /// Records the error of a stream that gave up, which becomes the transfer's error if no stream
    /// is left.
    pub(crate) fn note_given_up(&self, error: TransferError) {
        self.given_up.lock().replace(error);
    }

    /// Takes the error of the last stream that gave up.
    pub(crate) fn take_given_up(&self) -> Option<TransferError> {
        self.given_up.lock().take()
    }

    /// Returns the flag that is raised once nothing is left to fetch.
    pub(crate) fn finished(&self) -> Cancel {
        self.finished.lock().clone()
    }

    /// Replaces the flag of [`finished`](Self::finished), because bytes are to be moved again.
    pub(crate) fn resume(&self) {
        *self.finished.lock() = self.stop.child();
    }
}

/// The progress of one source.
#[derive(Default)]
pub(crate) struct SourceProgress {
    received: AtomicU64,
    pub(crate) sockets: OpenSockets,
    /// The target number of streams.
    pub(crate) wanted: AtomicUsize,
    /// The highest target number of streams so far.
    most_wanted: AtomicUsize,
    /// Whether one worker moves bytes over all connections of the source.
    multiplexed: AtomicBool,
    /// The highest rate of all streams of the source together, in bit/s.
    path_rate: AtomicU64,
    /// The clamp of a connection's receive window in bytes; zero before one.
    window_clamp: AtomicU64,
    /// Whether the source was shown to have the file.
    usable: AtomicBool,
    /// Whether the source has failed, also for later rounds.
    failed: AtomicBool,
    /// The ranges that this source delivered, to identify the source of wrong bytes.
    delivered: Mutex<RangeSet>,
}

/// The waiting times of streams, in nanoseconds, summed over the streams.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) writer: AtomicU64,
    pub(crate) limit: AtomicU64,
}

impl Waits {
    /// Returns the sum of the waiting times.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.writer.load(Ordering::Relaxed) + self.limit.load(Ordering::Relaxed))
    }
}

impl SourceProgress {
    /// Returns the bytes received from this source.
    pub(crate) fn received(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Sets the target number of streams.
    pub(crate) fn set_wanted(&self, streams: usize) {
        self.wanted.store(streams, Ordering::Relaxed);
        self.most_wanted.fetch_max(streams, Ordering::Relaxed);
    }

    /// Returns the target number of streams.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Sets whether one worker moves bytes over all connections of this source.
    pub(crate) fn set_multiplexed(&self, multiplexed: bool) {
        self.multiplexed.store(multiplexed, Ordering::Relaxed);
    }

    /// Returns the number of connections, open or planned, of `workers` workers of this source.
    pub(crate) fn connections(&self, workers: usize) -> usize {
        if self.multiplexed.load(Ordering::Relaxed) && workers > 0 { self.wanted() } else { workers }
    }

    /// Records the rate of all streams of this source together.
    pub(crate) fn note_rate(&self, rate: Rate) {
        self.path_rate.fetch_max(rate.as_bits_per_sec(), Ordering::Relaxed);
    }

    /// Records the clamp of a connection's receive window.
    pub(super) fn note_window_clamp(&self, clamp: Option<Bytes>) {
        if let Some(clamp) = clamp {
            self.window_clamp.store(clamp.get(), Ordering::Relaxed);
        }
    }

    /// Returns the latest clamp of a connection's receive window.
    pub(crate) fn window_clamp(&self) -> Option<Bytes> {
        Some(Bytes::new(self.window_clamp.load(Ordering::Relaxed))).filter(|clamp| *clamp > Bytes::ZERO)
    }

    /// Returns a stream's share of the path's bytes in flight; zero if the source never had several
    /// streams.
    pub(crate) fn window_share(&self, rtt: Rtt) -> Bytes {
        if self.most_wanted.load(Ordering::Relaxed) <= 1 {
            return Bytes::ZERO;
        }
        let rate = Rate::bits_per_sec(self.path_rate.load(Ordering::Relaxed));
        Bytes::new(rate.bdp(rtt).get() / self.wanted().max(1) as u64)
    }

    /// Sets whether the source is usable: it was shown to have the file, and has not failed since.
    pub(crate) fn set_usable(&self, usable: bool) {
        self.usable.store(usable, Ordering::Relaxed);
    }

    /// Marks the source as failed: it is down, or has another file.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the source has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns whether the source is usable.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    /// Records a range delivered by this source.
    pub(super) fn note_delivered(&self, range: ByteRange) {
        self.delivered.lock().insert(range);
    }

    /// Returns all ranges delivered by this source.
    pub(crate) fn delivered(&self) -> RangeSet {
        self.delivered.lock().clone()
    }

    /// Removes `range`, which is to be fetched again, from the delivered ranges.
    pub(crate) fn forget_delivered_in(&self, range: ByteRange) {
        self.delivered.lock().remove(range);
    }

    /// Clears and returns the delivered ranges, which are wrong or are fetched again.
    pub(crate) fn forget_delivered(&self) -> RangeSet {
        std::mem::take(&mut *self.delivered.lock())
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
            end: TransferEnd::new(stop),
            schedule,
            limit,
            received: AtomicU64::new(0),
            running: RunningStreams::default(),
            waits: Waits::default(),
            cpu: JobCpu::default(),
            sources: (0..sources).map(|_| SourceProgress::default()).collect(),
        }
    }

    /// Emits an event to the observer.
    pub(crate) fn emit(&self, event: &Event) {
        self.observer.on(self.start.elapsed(), event);
    }

    /// Ends the transfer with `error`, unless it has failed already.
    pub(crate) fn fail(&self, error: TransferError) {
        self.end.fail(error);
    }

    /// Returns whether another source is usable or is being compared.
    pub(crate) fn has_other_source(&self, source: usize) -> bool {
        let delivers = |(other, progress): (usize, &SourceProgress)| other != source && progress.is_usable();
        self.running.are_joining() || self.sources.iter().enumerate().any(delivers)
    }

    /// Returns the number of connections, open or planned, over all sources.
    pub(crate) fn connections(&self) -> usize {
        let streams = self.running.handles.lock();
        let of = |source: usize| streams.iter().filter(|stream| stream.source == source).count();
        self.sources.iter().enumerate().map(|(source, progress)| progress.connections(of(source))).sum()
    }

    /// Cancels the waits of all streams and mirrors, because no work is left.
    pub(crate) fn interrupt_all(&self) {
        self.end.finished().cancel();
        self.running.handles.lock().iter().for_each(|stream| stream.interrupt());
    }

    /// Returns the bytes moved so far: read from sockets, or acknowledged by the peer.
    pub(crate) fn received(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Returns the bytes left to move.
    pub(crate) fn left(&self) -> Bytes {
        self.schedule.with(|schedule, _| schedule.left())
    }

    /// Reads every socket; returns a sample of each stream, and the sum.
    pub(crate) fn read_sockets(&self) -> (Vec<StreamSample>, Sockets) {
        OpenSockets::read_all(self.sources.iter().map(|source| &source.sockets))
    }

    /// Returns whether `--limit` bounds the rate.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.as_ref().and_then(RateLimit::rate).is_some()
    }

    /// Returns how many bytes of `spare` to read at once, for an even rate under `--limit`.
    pub(super) fn read_at_most(&self, spare: usize) -> usize {
        self.limit.as_ref().map_or(spare, |limit| limit.read_at_most(spare))
    }

    /// Counts bytes read from a source's socket; waits as `--limit` requires.
    pub(super) fn add_received(&self, source: usize, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.sources[source].received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.wait_for_limit(bytes);
    }

    /// Waits as `--limit` requires after bytes read from a socket.
    pub(super) fn wait_for_limit(&self, bytes: usize) {
        if let Some(limit) = &self.limit {
            let wait = limit.read(Bytes::new(bytes as u64));
            wait_for_limit(&self.end.stop, wait, |waited| add(&self.waits.limit, waited));
        }
    }
}
