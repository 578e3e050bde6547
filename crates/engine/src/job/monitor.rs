//! Monitors a running transfer: emits progress and samples, finds the limit, and collects facts for
//! the path memory.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::event::Event;
use longhaul_core::telemetry::{PageCache, Sample, Snapshot};
use longhaul_core::tune::streams::Remembered;
use longhaul_core::units::{Bytes, Rate, Rtt};
use parking_lot::Mutex;

use crate::limit_watch::{CHECK_INTERVAL, LimitWatch};
use crate::sampling::SampleInterval;
use crate::sink::pages::{HostCounter, PageCounter};
use crate::sink::pipeline::Pipeline;
use crate::sustained_rate::SustainedRate;
use crate::telemetry;
use crate::transfer::TransferProgress;

/// The measurements of a transfer's path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PathFacts {
    /// The time from the first to the last byte.
    pub(super) flowing: Duration,
    /// The highest goodput over one second, which is the rate after ramp-up.
    pub(super) best: Rate,
    /// Round-trip time.
    pub(super) rtt: Option<Rtt>,
    /// The largest sum of the streams' receive windows.
    pub(super) rwin: Option<Bytes>,
    /// Packets that arrived out of order.
    pub(super) out_of_order: u64,
    /// Streams used.
    pub(super) streams: usize,
    /// The path to the primary source as its tuner found it, if reliable.
    pub(super) tuned: Option<Remembered>,
}

/// Monitors the streams of a fetch and the writing of its file.
pub(super) struct FetchMonitor<'a> {
    pub(super) pipeline: &'a Pipeline,
    /// Only one round of streams runs at a time.
    pub(super) limits: Mutex<LimitWatch>,
    /// The latest count of the output file's cached pages, if counted.
    pages: Mutex<Option<PageCache>>,
}

impl<'a> FetchMonitor<'a> {
    pub(super) fn new(pipeline: &'a Pipeline, limits: LimitWatch) -> Self {
        Self { pipeline, limits: Mutex::new(limits), pages: Mutex::default() }
    }

    /// Runs until the last stream has ended; counts cached pages if no sampler does.
    pub(super) fn watch(
        &self,
        transfer: &TransferProgress<'_>,
        mut pages: Option<PageCounter>,
        alive: &Receiver<()>,
    ) -> PathFacts {
        let mut limits = self.limits.lock();
        let began = Instant::now();
        let streams_start = transfer.start.elapsed();
        let emit = |event: &Event| transfer.emit(event);
        // Before a second round, the time went into verification.
        limits.settle(streams_start, emit);
        let mut facts = PathFacts::default();
        let mut rate = SustainedRate::default();
        let mut by_source: Vec<_> = transfer.sources.iter().map(|_| SustainedRate::default()).collect();
        loop {
            let ended = alive.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Disconnected);
            if let Some(counted) = pages.as_mut().and_then(|pages| pages.fresh(transfer.start.elapsed())) {
                *self.pages.lock() = Some(counted);
            }
            self.pipeline.pool().trim();
            let now = self.snapshot(transfer);
            limits.open(streams_start, transfer.start.elapsed(), &now, emit);
            let busiest = [transfer.cpu.take_busiest(), self.pipeline.take_busiest_writer()];
            let busiest = busiest.into_iter().max_by_key(|times| times.sum()).unwrap_or_default();
            limits.observe(transfer.start.elapsed(), &now, &transfer.waits, busiest, emit);
            facts.rtt = now.sockets.times.rtt.or(facts.rtt);
            facts.rwin = facts.rwin.max(now.sockets.windows.rwin);
            facts.out_of_order = now.sockets.counters.out_of_order;
            rate.observe(now.received, began.elapsed(), ended);
            for (source, best) in transfer.sources.iter().zip(&mut by_source) {
                best.observe(source.received(), began.elapsed(), ended);
                source.note_rate(best.best());
            }
            transfer.emit(&Event::Progress(Box::new((&now).into())));
            if ended {
                break;
            }
        }
        limits.pause(emit);
        facts.best = rate.best();
        facts.flowing = began.elapsed();
        // If the number of streams was tuned, its last value.
        let streams = transfer.sources.iter().map(|source| source.sockets.most().min(source.wanted()));
        facts.streams = streams.sum::<usize>().max(1);
        facts
    }

    fn snapshot(&self, transfer: &TransferProgress<'_>) -> Snapshot {
        let (pipeline, received) = (self.pipeline, transfer.received());
        let present = pipeline.resumed() + received;
        Snapshot {
            present: pipeline.size().map_or(present, |size| present.min(size)),
            received,
            written: pipeline.written() - pipeline.resumed(),
            size: pipeline.size(),
            sockets: transfer.read_sockets().1,
            segments: pipeline.pool().usage(),
            page_cache: *self.pages.lock(),
        }
    }

    /// Takes a sample every `interval` until the sender of `alive` is dropped, and then a last one.
    ///
    /// Continues while the file is flushed, because only then does the page cache drain.
    pub(super) fn sample(
        &self,
        transfer: &TransferProgress<'_>,
        mut pages: Option<PageCounter>,
        interval: &SampleInterval,
        alive: &Receiver<()>,
    ) {
        let mut host = HostCounter::default();
        let take = |_last| {
            let now = transfer.start.elapsed();
            // First, because counting takes time and the other values belong to one point in time.
            let page_cache = pages.as_mut().and_then(|pages| pages.fresh(now));
            if page_cache.is_some() {
                *self.pages.lock() = page_cache;
            }
            let host_pages = host.fresh(now);
            let began = transfer.start.elapsed();
            let (streams, sockets) = transfer.read_sockets();
            let mut sample = Sample {
                took: None,
                moved: transfer.received(),
                sockets,
                streams,
                segments: Some(self.pipeline.pool().usage()),
                written: Some(self.pipeline.written() - self.pipeline.resumed()),
                page_cache,
                host_pages,
            };
            sample.took = Some(transfer.start.elapsed().saturating_sub(began));
            Some(sample)
        };
        telemetry::sample(interval, alive, take, |event| transfer.emit(event));
    }
}
