//! Observes the limit of a running transfer and reports each change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_core::advice::{
    Attribution, End, Finding, KnownLimits, LimitedBy, LimitedSpan, PathReading, Reading, SenderPace,
    ThreadTimes, Witness,
};
use longhaul_core::event::Event;
use longhaul_core::telemetry::Snapshot;
use longhaul_sys::{host, sockopt};

use crate::job_cpu::CoreTimes;
use crate::transfer::Waits;

/// The interval of observation: out of step with peers that send or read by a timer of a twentieth
/// or a tenth of a second.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(103);

/// The limits of a transfer over time.
#[derive(Debug)]
pub(crate) struct LimitWatch {
    end: End,
    attribution: Attribution,
    last: Option<LimitedBy>,
    began: bool,
    /// Sums of the busiest thread's times between observations.
    busiest: CoreTimes,
}

impl LimitWatch {
    /// Starts with the transfer, observed at end `end`; `pace` is what its sender paces itself to:
    /// the peer, or this host.
    pub(crate) fn new(end: End, pace: Option<SenderPace>) -> Self {
        let attribution = Attribution::new(end).with_pace(pace);
        Self { end, attribution, last: None, began: false, busiest: CoreTimes::default() }
    }

    /// Attributes the time until `now` to connection setup: no byte could arrive before
    /// `streams_start`.
    pub(crate) fn open(
        &mut self,
        streams_start: Duration,
        now: Duration,
        snapshot: &Snapshot,
        emit: impl Fn(&Event),
    ) {
        if !std::mem::replace(&mut self.began, true) {
            let path = PathReading { min_rtt: snapshot.sockets.times.min_rtt, ..PathReading::default() };
            let reading = Reading { path, ..Reading::default() };
            let closed = self.attribution.observe(streams_start, &reading);
            // The event's age is relative to the time at which it is emitted.
            let span = closed
                .or_else(|| self.attribution.end())
                .map(|span| LimitedSpan { to: span.to.max(now), ..span });
            self.report(span, emit);
        }
    }

    /// Observes a transfer at `now`, relative to its start; `busiest` is the busiest thread's times
    /// since the last call.
    pub(crate) fn observe(
        &mut self,
        now: Duration,
        snapshot: &Snapshot,
        waits: &Waits,
        busiest: CoreTimes,
        emit: impl Fn(&Event),
    ) {
        self.busiest.ran += busiest.ran;
        self.busiest.starved += busiest.starved;
        let CoreTimes { ran, starved } = self.busiest;
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        let threads = ThreadTimes { disk: time(&waits.writer), limit: time(&waits.limit), ran, starved };
        let segments = snapshot.segments;
        let resumed = snapshot.present.saturating_sub(snapshot.received);
        let mut reading = Reading {
            threads: Some(threads),
            // A sender's ring is full whenever the network is slower than the disk.
            buffer_full: self.end == End::Receiver && segments.count > 0 && segments.in_use >= segments.count,
            ..Reading::of(self.end, snapshot.received, &snapshot.sockets)
        };
        reading.sender.buffers_empty &= snapshot.size.is_some_and(|size| snapshot.written + resumed < size);
        let span = self.attribution.observe(now, &reading);
        self.report(span, emit);
    }

    /// Ends the current interval, at the end of the transfer or before a pause.
    pub(crate) fn pause(&mut self, emit: impl Fn(&Event)) {
        let span = self.attribution.end();
        self.report(span, emit);
    }

    /// Attributes the time since the last reading to the disk, which flushed the file or read it
    /// back.
    pub(crate) fn settle(&mut self, now: Duration, emit: impl Fn(&Event)) {
        if self.began {
            let span = self.attribution.assign(now, Witness::Flush);
            self.report(span, emit);
        }
    }

    /// Returns the limit that held the transfer back; `known` has the user's settings and the
    /// path's rate. The host's limits are read.
    pub(crate) fn finding(&self, known: KnownLimits) -> Finding {
        self.attribution.finding(&KnownLimits {
            tcp_rmem_max: host::tcp_rmem_max(),
            tcp_wmem_max: host::tcp_wmem_max(),
            rmem_max: host::rmem_max().filter(|_| !sockopt::may_force_recv_buffer()),
            window_scaling: host::window_scaling(),
            ..known
        })
    }

    fn report(&mut self, span: Option<LimitedSpan>, emit: impl Fn(&Event)) {
        let Some(LimitedSpan { from, to, limit: by }) = span else { return };
        if self.last.replace(by) != Some(by) {
            emit(&Event::Limited { by, ago: to.saturating_sub(from) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use longhaul_core::telemetry::{Segments, Sockets};
    use longhaul_core::units::{Bytes, Rate};

    use super::*;

    #[test]
    fn each_change_is_reported_once_and_the_end_is_attributed_to_the_disk() {
        let events = RefCell::new(Vec::new());
        let emit = |event: &Event| events.borrow_mut().push(event.clone());
        let mut watch = LimitWatch::new(End::Receiver, None);
        let sockets = Sockets { open: 1, ..Sockets::default() };
        let mut snapshot = Snapshot { sockets, ..Snapshot::default() };
        let at = |tenths: u64| Duration::from_millis(100 * tenths);
        watch.open(at(1), at(2), &snapshot, emit);
        for tenths in 2..20 {
            snapshot.received = Bytes::mib(tenths);
            let full = usize::from(tenths >= 10);
            snapshot.segments = Segments { in_use: 4 * full, count: 4, size: Bytes::mib(1) };
            watch.observe(at(tenths), &snapshot, &Waits::default(), CoreTimes::default(), emit);
        }
        watch.pause(emit);
        watch.settle(at(30), emit);
        let limits: Vec<_> = events.into_inner();
        let ago = |by, tenths| Event::Limited { by, ago: at(tenths) };
        let expected = [ago(LimitedBy::SlowStart, 2), ago(LimitedBy::Unknown, 1), ago(LimitedBy::Disk, 1)];
        assert_eq!(limits, expected);
        let finding = watch.finding(KnownLimits::default());
        assert_eq!(finding.limit, LimitedBy::Disk);
        assert!((finding.shares.get(LimitedBy::Disk) - 20.0 / 30.0).abs() < 0.01, "{finding:?}");
        let path_rate = Some(Rate::bits_per_sec(200_000_000));
        let known = watch.finding(KnownLimits { path_rate, ..KnownLimits::default() });
        assert!(known.advice[1].ends_with(" -> 200 Mbit/s, which the path held before"), "{known:?}");
    }
}
