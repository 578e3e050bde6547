//! Watches a running transfer: progress for the observer, facts for the diagnosis.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::advice::Facts;
use longhaul_core::event::{Event, Snapshot};
use longhaul_sys::host;

use super::shared::Shared;
use crate::sink::pages::PageCounter;
use crate::sustained::SustainedRate;
use crate::threads::lock;

const TICK: Duration = Duration::from_millis(100);

/// Watches until every stream's end of `alive` is gone; counts pages where that falls to the monitor.
pub(super) fn watch(shared: &Shared<'_>, mut pages: Option<PageCounter>, alive: &Receiver<()>) -> Facts {
    let began = Instant::now();
    let mut facts = Facts { tcp_rmem_max: host::tcp_rmem_max(), ..Facts::default() };
    let mut rate = SustainedRate::default();
    // Summed over the streams there were, as their waits are.
    let (mut at_work, mut looked) = (Duration::ZERO, began);
    loop {
        let ended = alive.recv_timeout(TICK) == Err(RecvTimeoutError::Disconnected);
        if let Some(counted) = pages.as_mut().and_then(|pages| pages.fresh(shared.start.elapsed())) {
            *lock(&shared.pages) = Some(counted);
        }
        let streams = u32::try_from(shared.crew.running()).unwrap_or(u32::MAX).max(1);
        at_work += std::mem::replace(&mut looked, Instant::now()).elapsed().saturating_mul(streams);
        let now = snapshot(shared);
        facts.rtt = now.sockets.rtt.or(facts.rtt);
        facts.data_rtt = facts.data_rtt.max(now.sockets.data_rtt);
        facts.rwin = facts.rwin.max(now.sockets.rwin);
        facts.out_of_order = now.sockets.counters.out_of_order;
        rate.observe(now.received, began.elapsed(), ended);
        shared.brings(rate.best());
        shared.emit(&Event::Progress(now));
        if ended {
            break;
        }
    }
    facts.best = rate.best();
    facts.flowing = began.elapsed();
    // Where somebody chose their number, what that came to.
    facts.streams = shared.sockets.most().min(shared.crew.wanted()).max(1);
    let share = facts.flowing.as_secs_f64() / at_work.as_secs_f64().max(1e-9);
    let mean = |total: u64| Duration::from_nanos(total).mul_f64(share);
    facts.waited_for_writer = mean(shared.waits.writer.load(Ordering::Relaxed));
    facts.waited_for_limit = mean(shared.waits.limit.load(Ordering::Relaxed));
    facts.busiest_thread = Duration::from_nanos(shared.waits.busiest.load(Ordering::Relaxed));
    facts
}

fn snapshot(shared: &Shared<'_>) -> Snapshot {
    let (pipeline, received) = (&shared.pipeline, shared.received_so_far());
    let present = pipeline.resumed() + received;
    Snapshot {
        present: pipeline.size().map_or(present, |size| present.min(size)),
        received,
        written: pipeline.written() - pipeline.resumed(),
        size: pipeline.size(),
        sockets: shared.sockets.read().1,
        segments: pipeline.pool().usage(),
        page_cache: *lock(&shared.pages),
    }
}
