//! Monitors an upload: progress for the observer, facts for the diagnosis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::advice::SenderFacts;
use longhaul_core::event::Event;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::telemetry::Sample;
use longhaul_core::units::Bytes;
use longhaul_sys::host;

use super::progress::UploadProgress;
use crate::sustained_rate::SustainedRate;
use crate::telemetry;

const TICK: Duration = Duration::from_millis(100);

/// Monitors the upload until the sender of `alive` is dropped.
pub(super) fn watch(progress: &UploadProgress<'_>, alive: &Receiver<()>) -> SenderFacts {
    let mut facts = SenderFacts { tcp_wmem_max: host::tcp_wmem_max(), ..SenderFacts::default() };
    let began = Instant::now();
    let mut rate = SustainedRate::default();
    let mut first_byte = None;
    loop {
        let ended = alive.recv_timeout(TICK) == Err(RecvTimeoutError::Disconnected);
        let (now, streams) = progress.snapshot();
        if now.received > Bytes::ZERO {
            first_byte.get_or_insert_with(Instant::now);
        }
        facts.rtt = now.sockets.rtt.or(facts.rtt);
        facts.min_rtt = now.sockets.min_rtt.or(facts.min_rtt);
        facts.retransmits = now.sockets.counters.retransmits;
        // Of several connections the one that has sent for longest shows it best.
        let busiest = streams.iter().filter_map(|stream| stream.tcp).max_by_key(TcpInfo::tcpi_busy_time);
        if let Some(tcp) = busiest.filter(|tcp| busy(tcp) >= facts.busy) {
            limits(&tcp, &mut facts);
        }
        rate.observe(now.received, began.elapsed(), ended);
        progress.emit(&Event::Progress(Box::new((&now).into())));
        if ended {
            break;
        }
    }
    let waits = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
    facts.best = rate.best();
    facts.flowing = first_byte.map_or(Duration::ZERO, |first| first.elapsed());
    // Summed over the streams, and shown for one.
    let streams = u32::try_from(progress.streams()).unwrap_or(u32::MAX);
    facts.waited_for_disk = waits(&progress.transfer.waits.writer) / streams;
    facts.waited_for_limit = waits(&progress.transfer.waits.limit) / streams;
    facts.sending_thread = waits(&progress.cpu).max(waits(&progress.transfer.waits.busiest));
    facts
}

/// Returns for how long a connection has had something to send.
fn busy(tcp: &TcpInfo) -> Duration {
    Duration::from_micros(tcp.tcpi_busy_time().unwrap_or(0))
}

/// Reads the kernel's own account of what has limited a connection.
fn limits(tcp: &TcpInfo, facts: &mut SenderFacts) {
    let time = |microseconds: Option<u64>| Duration::from_micros(microseconds.unwrap_or(0));
    facts.busy = busy(tcp);
    facts.window_limited = time(tcp.tcpi_rwnd_limited());
    facts.buffer_limited = time(tcp.tcpi_sndbuf_limited());
}

/// Takes a sample every `interval` until the sender of `alive` is dropped, and a last one then.
pub(super) fn sample(progress: &UploadProgress<'_>, interval: Duration, alive: &Receiver<()>) {
    let take = |_last| {
        let began = progress.transfer.start.elapsed();
        let (now, streams) = progress.snapshot();
        Some(Sample {
            took: Some(progress.transfer.start.elapsed().saturating_sub(began)),
            moved: now.received,
            sockets: now.sockets,
            streams,
            segments: progress.ring(),
            ..Sample::default()
        })
    };
    telemetry::sample(interval, alive, take, |event| progress.emit(event));
}
