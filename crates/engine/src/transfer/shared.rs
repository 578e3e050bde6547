//! What the threads of one transfer share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, Observer};
use longhaul_core::limit::Limiter;
use longhaul_core::telemetry::PageCache;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::crew::Crew;
use super::error::TransferError;
use super::work::Work;
use crate::cancel::Cancel;
use crate::open_sockets::OpenSockets;
use crate::sink::pipeline::Pipeline;
pub(super) use crate::threads::add;
use crate::threads::lock;

/// State shared by streams, writers and the monitor of a transfer.
pub(super) struct Shared<'a> {
    pub(super) start: Instant,
    pub(super) observer: &'a dyn Observer,
    /// Raised when the user cancels, and when any thread fails for good.
    pub(super) stop: Cancel,
    pub(super) work: Work,
    pub(super) pipeline: Pipeline,
    pub(super) limiter: Option<Mutex<Limiter>>,
    pub(super) received: AtomicU64,
    pub(super) crew: Crew,
    /// The server is being paced through the window of the only stream.
    paced: AtomicBool,
    /// What all streams together brought at best, in bits per second.
    path_rate: AtomicU64,
    pub(super) waits: Waits,
    pub(super) sockets: OpenSockets,
    /// The latest count of the file's pages, where somebody counts them.
    pub(super) pages: Mutex<Option<PageCache>>,
    failure: Mutex<Option<TransferError>>,
    /// Why the last stream to give up did.
    given_up: Mutex<Option<TransferError>>,
}

/// For how long streams stood still, in nanoseconds, summed over the streams.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) writer: AtomicU64,
    pub(super) limit: AtomicU64,
    /// CPU time of the busiest receiving thread.
    pub(super) busiest: AtomicU64,
}

impl Waits {
    /// Returns for how long streams have stood still.
    pub(super) fn so_far(&self) -> Duration {
        Duration::from_nanos(self.writer.load(Ordering::Relaxed) + self.limit.load(Ordering::Relaxed))
    }
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        start: Instant,
        observer: &'a dyn Observer,
        stop: Cancel,
        work: Work,
        pipeline: Pipeline,
        limiter: Option<Limiter>,
        tuned: bool,
    ) -> Self {
        let crew = Crew::new(tuned, &stop);
        Self {
            start,
            observer,
            stop,
            work,
            pipeline,
            limiter: limiter.map(Mutex::new),
            received: AtomicU64::new(0),
            crew,
            paced: AtomicBool::new(false),
            path_rate: AtomicU64::new(0),
            waits: Waits::default(),
            sockets: OpenSockets::default(),
            pages: Mutex::default(),
            failure: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// Tells the observer.
    pub(super) fn emit(&self, event: &Event) {
        self.observer.on(self.start.elapsed(), event);
    }

    /// Ends the transfer with `error`, unless an earlier one has.
    pub(super) fn fail(&self, error: TransferError) {
        lock(&self.failure).get_or_insert(error);
        self.stop.cancel();
    }

    /// Takes the error that ended the transfer.
    pub(super) fn failure(&self) -> Option<TransferError> {
        lock(&self.failure).take()
    }

    /// Keeps why a stream gave up: the answer where in the end nobody was left for its work.
    pub(super) fn gave_up(&self, error: TransferError) {
        lock(&self.given_up).replace(error);
    }

    /// Takes that.
    pub(super) fn last_given_up(&self) -> Option<TransferError> {
        lock(&self.given_up).take()
    }

    /// Notes that the server is being paced through a window, or no longer.
    pub(super) fn set_paced(&self, paced: bool) {
        self.paced.store(paced, Ordering::Relaxed);
    }

    /// Returns whether it is: then nobody else may come.
    pub(super) fn is_paced(&self) -> bool {
        self.paced.load(Ordering::Relaxed)
    }

    /// Notes what all streams together brought.
    pub(super) fn brings(&self, rate: Rate) {
        self.path_rate.fetch_max(rate.as_bits_per_sec(), Ordering::Relaxed);
    }

    /// Returns a stream's share of what the path has in flight, where there are or were several.
    pub(super) fn window_share(&self, rtt: Rtt) -> Bytes {
        if !self.crew.had_several() {
            return Bytes::ZERO;
        }
        let rate = Rate::bits_per_sec(self.path_rate.load(Ordering::Relaxed));
        Bytes::new(rate.bdp(rtt).get() / self.crew.wanted().max(1) as u64)
    }

    /// Returns how much of `spare` to read at once: all of it, or little enough for an even rate under `--limit`.
    pub(super) fn read_at_most(&self, spare: usize) -> usize {
        const SMALLEST: usize = 4096;
        let even = |limiter: &Mutex<Limiter>| {
            (lock(limiter).rate().as_bytes_per_sec() / 20).max(SMALLEST as u64) as usize
        };
        self.limiter.as_ref().map_or(spare, |limiter| spare.min(even(limiter)))
    }

    /// Returns the bytes read from sockets so far.
    pub(super) fn received_so_far(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Accounts for bytes read from a socket; waits as long as `--limit` asks for.
    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(limiter) = &self.limiter {
            let wait = lock(limiter).read(Bytes::new(bytes as u64), self.start.elapsed());
            if !wait.is_zero() {
                self.stop.sleep(wait);
                add(&self.waits.limit, wait);
            }
        }
    }
}
