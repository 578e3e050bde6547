//! Losses of packets, and for how long they slow a transfer.

use std::time::Duration;

use super::interval::Interval;
use super::params;
use super::reading::End;
use super::recent_rates::RecentRates;
use crate::units::{Bytes, Rate, Rtt};

/// Payload of a packet of 1500 bytes with timestamps (RFC 7323).
const PACKET: f64 = 1448.0;

/// A loss whose effect may last: a burst of lost packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    /// When the interval ended in which its first packet was lost.
    first: Duration,
    /// When the interval ended in which its last packet was lost.
    last: Duration,
    /// How long the congestion window stays below that at the loss.
    recovery: Duration,
    /// Whether a queue stood just before, which overflowed.
    pub(super) is_overflow: bool,
    /// The rate before the loss, or before the first of losses that follow one another, where that
    /// did not grow.
    rate_before: Option<Rate>,
    /// What was moved since, as far as it shows the effect of these losses: in the earlier half of
    /// that time, and in the later one.
    since: [MovedSince; 2],
    /// Whether these losses, or the last ones whose effect was measured, have not lowered the rate.
    is_harmless: bool,
    /// Whether the congestion window is still smaller than without the loss.
    lasts: bool,
    /// The number of bursts of losses without a recovery between them.
    bursts: u32,
    /// Whether an interval of these bursts is lossy.
    is_dense: bool,
}

/// What was moved after a loss, while its effect on the rate is largest.
#[derive(Debug, Clone, Copy, Default)]
struct MovedSince {
    moved: Bytes,
    intervals: u32,
    time: Duration,
}

impl MovedSince {
    fn and(self, other: Self) -> Self {
        Self {
            moved: self.moved + other.moved,
            intervals: self.intervals + other.intervals,
            time: self.time + other.time,
        }
    }

    fn rate(&self) -> Rate {
        Rate::over(self.moved, self.time)
    }
}

impl Loss {
    /// Returns whether enough was moved since to show the effect.
    fn is_measured(&self) -> bool {
        self.since.iter().map(|half| half.intervals).sum::<u32>() >= params::MEASURED_INTERVALS
    }

    /// Returns whether the rate is as high as before, or, if the rate before is not known, does not
    /// recover as a congestion window does; `None` until enough intervals are measured.
    fn has_no_effect(&self) -> Option<bool> {
        let [earlier, later] = self.since;
        match self.rate_before {
            Some(before) => {
                self.is_measured().then(|| earlier.and(later).rate() >= before.scaled(params::HARMLESS_SHARE))
            }
            None => (earlier.intervals.min(later.intervals) >= params::RECOVERING_INTERVALS)
                .then(|| later.rate() <= earlier.rate().scaled(params::RECOVERING_GROWTH)),
        }
    }

    /// Returns whether random losses explain the rate, seen from `end`: the rate before is known,
    /// or the losses go on. At the end of slow start, policers and short queues drop many packets
    /// at once; only a sender can count them.
    pub(super) fn is_random(&self, end: End) -> bool {
        self.rate_before.is_some()
            || self.bursts >= params::LIMITING_BURSTS
            || end == End::Sender && !self.is_dense
    }

    /// Returns whether the rate since has shown that the loss has no effect; another loss may have
    /// one.
    fn is_found_harmless(&self) -> bool {
        self.is_harmless && self.is_measured()
    }

    /// Returns whether the window is still smaller than it would be: after another time of recovery
    /// it exceeds that at the loss by as much as the loss took.
    fn is_recovering(&self, now: Duration) -> bool {
        now <= self.last + self.recovery * 2
    }
}

/// The losses so far.
#[derive(Debug, Clone)]
pub(super) struct LossTracker {
    end: End,
    /// The end of the last interval in which a packet was lost.
    last_packet: Option<Duration>,
    /// The last loss with an effect, unless a queue has stood since.
    loss: Option<Loss>,
}

impl LossTracker {
    pub(super) fn new(end: End) -> Self {
        Self { end, last_packet: None, loss: None }
    }

    /// Returns the loss that slows the transfer.
    pub(super) fn limiting(&self) -> Option<Loss> {
        self.loss.filter(|loss| loss.lasts && !loss.is_harmless)
    }

    /// Returns whether the connection may stand still after a loss that has an effect.
    pub(super) fn awaits_timeout(&self, interval: &Interval) -> bool {
        self.loss.is_some_and(|loss| loss.last + retransmission_timeout(interval.base_rtt()) >= interval.end)
    }

    /// Returns whether a part of an interval may have been a wait for a retransmission.
    pub(super) fn is_after_loss(&self, interval: &Interval) -> bool {
        let timeout = retransmission_timeout(interval.base_rtt());
        self.last_packet.is_some_and(|at| at + interval.span + timeout >= interval.end)
    }

    /// Records the losses of an interval, or judges the last loss by the rate since. Behind a queue
    /// that stands (`is_queued`), a loss is the path's; `was_queued` where one stood just before.
    pub(super) fn record(
        &mut self,
        interval: &Interval,
        (was_queued, is_queued): (bool, bool),
        recent: &RecentRates,
    ) {
        if interval.lost() > 0 {
            self.last_packet = Some(interval.end);
        }
        if is_queued {
            self.loss = None;
        } else if interval.lost() > 0 {
            self.begin(interval, was_queued, recent);
        } else {
            self.judge(interval, recent);
        }
    }

    /// Begins a loss, or extends the last one, where its recovery takes a part of the interval at
    /// least.
    fn begin(&mut self, interval: &Interval, was_queued: bool, recent: &RecentRates) {
        let rtt = interval.base_rtt();
        let highest = recent.highest().max(interval.rate());
        let packets = highest.bdp(Rtt::new(rtt)).get() as f64 / interval.streams() as f64 / PACKET;
        let recovery = recovery(packets, rtt);
        // All that is in flight behind a lost packet arrives out of order, once a round trip at
        // most.
        let events = match self.end {
            End::Receiver => interval.lost() as f64 / packets.max(1.0),
            End::Sender => interval.lost() as f64,
        };
        let round_trips = interval.span.as_secs_f64() / rtt.as_secs_f64().max(1e-9);
        let events = events.clamp(1.0, round_trips.max(1.0));
        if recovery.as_secs_f64() * events < params::LIMITING_SHARE * interval.span.as_secs_f64() {
            return;
        }
        // The rate that the first of several losses has lowered does not measure the effect of the
        // next one.
        let measured = self.loss.filter(|loss| !loss.is_found_harmless());
        // A burst of losses takes some round trips to repair, in which more may be lost: one event.
        let burst =
            self.loss.filter(|loss| interval.end.saturating_sub(loss.first) <= interval.span + rtt * 5);
        self.loss = Some(Loss {
            bursts: burst.map_or_else(|| self.loss.map_or(0, |loss| loss.bursts) + 1, |loss| loss.bursts),
            is_dense: self.loss.is_some_and(|loss| loss.is_dense) || interval.is_lossy(self.end),
            first: burst.map_or(interval.end, |loss| loss.first),
            last: interval.end,
            recovery,
            is_overflow: was_queued || burst.is_some_and(|loss| loss.is_overflow),
            rate_before: measured.map_or_else(|| recent.before_loss(), |loss| loss.rate_before),
            since: measured
                .filter(|loss| loss.rate_before.is_some())
                .map(|loss| loss.since)
                .unwrap_or_default(),
            is_harmless: self.loss.is_some_and(|loss| loss.is_harmless),
            lasts: true,
        });
    }

    /// Judges by the rate since the last loss whether it has slowed the transfer, and forgets one
    /// whose effect is over.
    fn judge(&mut self, interval: &Interval, recent: &RecentRates) {
        let Some(loss) = &mut self.loss else { return };
        let rtt = interval.base_rtt();
        let age = interval.end.saturating_sub(loss.last);
        // Within a quarter of its recovery CUBIC is below 0.88 of the window at the loss;
        // retransmission takes a round trip or two.
        if age > rtt * 2 && age <= loss.recovery / 4 {
            let half = &mut loss.since[usize::from(age > loss.recovery / 8)];
            *half = half.and(MovedSince { moved: interval.moved(), intervals: 1, time: interval.span });
        }
        loss.is_harmless = loss.has_no_effect().unwrap_or(loss.is_harmless);
        // Beyond its recovery the window grows on from the loss, until something else limits.
        loss.lasts = loss.is_recovering(interval.end) || (loss.lasts && recent.grows_since(loss.last));
        if !loss.lasts && age > retransmission_timeout(rtt) {
            self.loss = None;
        }
    }
}

/// Returns for how long a loss keeps CUBIC below the window of `packets` at which it happens: K =
/// cbrt(W x 0.3 / 0.4) seconds, or where that is sooner, until its Reno-friendly window has grown
/// by 0.3 W at 0.53 packets a round trip (RFC 9438, sections 4.2 and 4.3).
fn recovery(packets: f64, rtt: Duration) -> Duration {
    const REDUCTION: f64 = 0.3;
    const CUBIC: f64 = 0.4;
    const RENO_FRIENDLY: f64 = 0.53;
    let cubic = (packets * REDUCTION / CUBIC).cbrt();
    let reno_friendly = packets * REDUCTION / RENO_FRIENDLY * rtt.as_secs_f64();
    Duration::try_from_secs_f64(cubic.min(reno_friendly)).unwrap_or(Duration::ZERO)
}

/// Returns how long a connection may stand still after a loss: a round trip until the loss is
/// known, and Linux's RTO, which is at least 200 ms beyond the RTT (`TCP_RTO_MIN`,
/// include/net/tcp.h).
fn retransmission_timeout(rtt: Duration) -> Duration {
    rtt * 2 + Duration::from_millis(200)
}
