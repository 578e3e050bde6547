//! Watches a running transfer: progress and samples for the observer, facts for the diagnosis.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::advice::Facts;
use longhaul_core::event::Event;
use longhaul_core::telemetry::{Sample, Snapshot};
use longhaul_sys::host;

use crate::sink::pages::{HostCounter, PageCounter};
use crate::sustained_rate::SustainedRate;
use crate::telemetry;
use crate::threads::lock;
use crate::transfer::FileTransfer;

/// How often the monitor looks.
const LOOK: Duration = Duration::from_millis(100);

/// Watches until the last stream has ended; counts pages where no sampler does.
pub(super) fn watch(
    transfer: &FileTransfer<'_>,
    mut pages: Option<PageCounter>,
    alive: &Receiver<()>,
) -> Facts {
    let began = Instant::now();
    let mut facts = Facts { tcp_rmem_max: host::tcp_rmem_max(), ..Facts::default() };
    let mut rate = SustainedRate::default();
    let mut by_source: Vec<_> = transfer.sources.iter().map(|_| SustainedRate::default()).collect();
    // Summed over the streams, as their waits are.
    let (mut at_work, mut looked) = (Duration::ZERO, began);
    loop {
        let ended = alive.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected);
        if let Some(counted) = pages.as_mut().and_then(|pages| pages.fresh(transfer.start.elapsed())) {
            *lock(&transfer.pages) = Some(counted);
        }
        transfer.pipeline.pool().trim();
        let now = snapshot(transfer);
        // A stream without a connection waits for work, not for the disk or the limit.
        let streams = u32::try_from(now.sockets.open).unwrap_or(u32::MAX).max(1);
        at_work += std::mem::replace(&mut looked, Instant::now()).elapsed().saturating_mul(streams);
        facts.rtt = now.sockets.rtt.or(facts.rtt);
        facts.data_rtt = facts.data_rtt.max(now.sockets.data_rtt);
        facts.rwin = facts.rwin.max(now.sockets.rwin);
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
    facts.best = rate.best();
    facts.flowing = began.elapsed();
    // Where their number was controlled, the last one.
    let streams = transfer.sources.iter().map(|source| source.sockets.most().min(source.wanted()));
    facts.streams = streams.sum::<usize>().max(1);
    let share = facts.flowing.as_secs_f64() / at_work.as_secs_f64().max(1e-9);
    let mean = |total: u64| Duration::from_nanos(total).mul_f64(share);
    facts.waited_for_writer = mean(transfer.waits.writer.load(Ordering::Relaxed));
    facts.waited_for_limit = mean(transfer.waits.limit.load(Ordering::Relaxed));
    facts.busiest_thread = Duration::from_nanos(transfer.waits.busiest.load(Ordering::Relaxed));
    facts
}

fn snapshot(transfer: &FileTransfer<'_>) -> Snapshot {
    let (pipeline, received) = (&transfer.pipeline, transfer.received());
    let present = pipeline.resumed() + received;
    Snapshot {
        present: pipeline.size().map_or(present, |size| present.min(size)),
        received,
        written: pipeline.written() - pipeline.resumed(),
        size: pipeline.size(),
        sockets: transfer.read_sockets().1,
        segments: pipeline.pool().usage(),
        page_cache: *lock(&transfer.pages),
    }
}

/// Takes a sample every `interval` until the other end of `alive` is gone, and a last one then.
///
/// It continues while the file is made durable: only then does the page cache empty itself.
pub(super) fn sample(
    transfer: &FileTransfer<'_>,
    mut pages: Option<PageCounter>,
    interval: Duration,
    alive: &Receiver<()>,
) {
    let mut host = HostCounter::default();
    let take = |_last| {
        let now = transfer.start.elapsed();
        // Before everything else, for counting may take a while, and a sample is of one moment.
        let page_cache = pages.as_mut().and_then(|pages| pages.fresh(now));
        if page_cache.is_some() {
            *lock(&transfer.pages) = page_cache;
        }
        let host_pages = host.fresh(now);
        let began = transfer.start.elapsed();
        let (streams, sockets) = transfer.read_sockets();
        let mut sample = Sample {
            took: None,
            moved: transfer.received(),
            sockets,
            streams,
            segments: Some(transfer.pipeline.pool().usage()),
            written: Some(transfer.pipeline.written() - transfer.pipeline.resumed()),
            page_cache,
            host_pages,
        };
        sample.took = Some(transfer.start.elapsed().saturating_sub(began));
        Some(sample)
    };
    telemetry::sample(interval, alive, take, |event| transfer.emit(event));
}
