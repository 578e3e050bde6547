//! The progress of one transfer, over all its rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, JobObserver};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::schedule::RangeScheduler;
use longhaul_core::telemetry::{Sockets, StreamSample};
use longhaul_core::units::{Bytes, Rate, Rtt};
use parking_lot::Mutex;

use super::shared_schedule::SharedSchedule;
use crate::cancel::Cancel;
use crate::job_cpu::JobCpu;
use crate::open_sockets::OpenSockets;
use crate::rate_limit::{RateLimit, wait_for_limit};
use crate::threads::add;

/// The progress of a transfer in either direction, shared by its threads.
pub(crate) struct TransferProgress<'a> {
    pub(crate) start: Instant,
    observer: JobObserver<'a>,
    limit: Option<RateLimit>,
    received: AtomicU64,
    pub(crate) waits: Waits,
    pub(crate) cpu: JobCpu,
    /// The progress of each source; an upload has one, the server.
    pub(crate) sources: Vec<SourceProgress>,
    /// The number of the next stream or connection.
    next_number: AtomicUsize,
}

/// What is known of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SourceLiveness {
    /// The source is not shown to have the file, or its bytes differ from those that are there,
    /// which may be wrong.
    #[default]
    Unproved,
    /// The source is shown to have the file.
    Usable,
    /// The source is down, or has another file.
    Failed,
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
    liveness: Mutex<SourceLiveness>,
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

    /// Records what is known of the source.
    pub(crate) fn set_liveness(&self, liveness: SourceLiveness) {
        *self.liveness.lock() = liveness;
    }

    /// Returns whether the source has failed.
    pub(crate) fn has_failed(&self) -> bool {
        *self.liveness.lock() == SourceLiveness::Failed
    }

    /// Returns whether the source is usable.
    pub(crate) fn is_usable(&self) -> bool {
        *self.liveness.lock() == SourceLiveness::Usable
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

impl<'a> TransferProgress<'a> {
    pub(crate) fn new(
        start: Instant,
        observer: JobObserver<'a>,
        limit: Option<RateLimit>,
        sources: usize,
    ) -> Self {
        Self {
            start,
            observer,
            limit,
            received: AtomicU64::new(0),
            waits: Waits::default(),
            cpu: JobCpu::default(),
            sources: (0..sources).map(|_| SourceProgress::default()).collect(),
            next_number: AtomicUsize::new(0),
        }
    }

    /// Emits an event to the observer.
    pub(crate) fn emit(&self, event: &Event) {
        self.observer.on(self.start.elapsed(), event);
    }

    /// Creates the schedule of a round; `is_begun` is whether no range is requested before its
    /// streams start.
    pub(crate) fn schedule(&self, scheduler: RangeScheduler, is_begun: bool) -> Arc<SharedSchedule> {
        Arc::new(SharedSchedule::new(self.start, scheduler, self.limit.clone(), is_begun))
    }

    /// Returns the first of `count` new numbers for streams or connections, unique within the
    /// transfer.
    pub(super) fn take_numbers(&self, count: usize) -> usize {
        self.next_number.fetch_add(count, Ordering::Relaxed)
    }

    /// Returns the bytes moved so far: read from sockets, or acknowledged by the peer.
    pub(crate) fn received(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Reads every socket; returns a sample of each stream, and the sum.
    pub(crate) fn read_sockets(&self) -> (Vec<StreamSample>, Sockets) {
        OpenSockets::read_all(self.sources.iter().map(|source| &source.sockets))
    }

    /// Returns how many bytes of `most` to move at once, for an even rate under `--limit`.
    pub(crate) fn share(&self, most: usize) -> usize {
        self.limit.as_ref().map_or(most, |limit| limit.read_at_most(most))
    }

    /// Counts bytes moved from or to a source.
    pub(super) fn add_received(&self, source: usize, bytes: Bytes) {
        self.received.fetch_add(bytes.get(), Ordering::Relaxed);
        self.sources[source].received.fetch_add(bytes.get(), Ordering::Relaxed);
    }

    /// Waits as `--limit` requires after `bytes`, unless `stop` is raised; returns whether it
    /// bounds the rate.
    pub(crate) fn wait_for_limit(&self, bytes: Bytes, stop: &Cancel) -> bool {
        let Some(limit) = &self.limit else { return false };
        wait_for_limit(stop, limit.read(bytes), |waited| add(&self.waits.limit, waited));
        limit.rate().is_some()
    }
}
