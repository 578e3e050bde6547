//! Detects congestion by a standing queue or losses, and cuts the pace to the capacity that is left.

use std::time::Duration;

use super::{Observation, Pacer, PacerPhase};
use crate::units::{Bytes, Rate};

/// A cut of the pace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Since when the queue has stood.
    since: Duration,
    /// The pace before the cut.
    from: Rate,
    /// Bytes retransmitted before the cut.
    lost_before: Bytes,
    /// The lower bound of the pace after the cut.
    least: Rate,
}

/// A queue that a cut should drain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// When it was last checked, once per RTT.
    at: Duration,
    /// Its length, as an RTT, at the last two checks: it may oscillate.
    looked: [Option<Duration>; 2],
    /// When it was last present.
    seen: Duration,
    /// The pace when it first appeared.
    from: Rate,
    /// Bytes retransmitted when it first appeared.
    lost: Bytes,
    /// Checks in a row at which it had not drained.
    looks: u32,
}

/// A standing queue longer than this plus 1 % of the RTT belongs to competing traffic.
const COMPETING_QUEUE: Duration = Duration::from_millis(2);
/// A queue shorter than this plus 0.5 % of the RTT is noise.
const NOISE_QUEUE: Duration = Duration::from_micros(1600);
/// A queue drains where it shortens by at least one part in this many of the RTT, per RTT.
const DRAIN_RTT_PARTS: u32 = 50;
/// Checks without draining after which a queue counts as kept full; the first shows nothing yet.
const UNDRAINED_CHECKS: u32 = 2;
/// A queue with losses that is shorter than this multiple of the threshold is full, and gets more checks.
const FULL_QUEUE_FACTOR: u32 = 4;
/// Checks without draining for a full queue, whose length shows less.
const UNDRAINED_CHECKS_FULL: u32 = 4;
/// A queue counts as standing after one part in this many of the RTT.
pub(super) const QUEUE_RTT_PARTS: u32 = 10;
/// The pace after a cut over the capacity left by competing traffic.
const CUT_PACE_SHARE: f64 = 0.97;
/// The same for the first RTT, so that the queue drains.
const DRAIN_PACE_SHARE: f64 = 0.92;
/// A loss rate that counts as congestion even without a queue.
const CONGESTION_LOSS: f64 = 0.02;
/// Losses up to this size never count as congestion.
const STRAY_LOSS: Bytes = Bytes::kib(24);
/// A cut leaves at least this share of the previous pace, or of the bottleneck's rate, until the RTT after it has shown more.
pub(super) const DEEPEST_CUT: f64 = 0.3;
/// The lower bound of any cut, unless the pace was lower: two segments per RTT, for delivery cannot be measured without sending.
const MIN_PACE_PER_RTT: Bytes = Bytes::new(2 * 1448);

impl Pacer {
    /// Cuts the pace to drain a queue; leaves at least `share` of the pace or of the bottleneck's rate.
    pub(super) fn cut(&mut self, from: Rate, share: f64, seen: &Observation, now: Duration) {
        let before = if share > 0.0 { self.start_draining(from, seen, now) } else { from };
        self.cut = Some(Cut {
            since: now.saturating_sub(seen.min_rtt.get() / QUEUE_RTT_PARTS),
            from,
            lost_before: seen.retransmits,
            least: before
                .max(self.capacity.unwrap_or_default())
                .scaled(share)
                .min(from.scaled(DRAIN_PACE_SHARE))
                .max(min_pace(seen))
                .min(from),
        });
        self.ignore_until = now + seen.rtt.get() + COMPETING_QUEUE;
        if let PacerPhase::Cruise { probe, .. } = &mut self.phase {
            probe.postpone(self.ignore_until + seen.min_rtt.get());
        }
    }

    /// Refines the pace after a cut: data delivered in the RTT after it was sent at the old pace.
    pub(super) fn recut(&mut self, seen: &Observation, now: Duration) {
        let Some(Cut { since, from, lost_before, least }) = self.cut else { return };
        let arrives = self.history.delivery_rate(since);
        let sent = self
            .history
            .sending_rate(since.saturating_sub(seen.rtt.get()), now.saturating_sub(seen.rtt.get()));
        let share = self.left_by_others(arrives, sent);
        // An overflowing queue drops more of bursts than of paced packets: competing flows may have lost nothing.
        let left_by_others =
            if seen.retransmits > lost_before { share.scaled(0.5) + arrives.scaled(0.5) } else { share };
        let held = |share| left_by_others.min(from).scaled(share).max(least);
        if let PacerPhase::Cruise { target, .. } = &mut self.phase {
            (*target, self.pace) = (held(CUT_PACE_SHARE), Some(held(DRAIN_PACE_SHARE)));
        }
    }

    /// Returns the pace before a queue that has not drained after a cut.
    ///
    /// Traffic at a fixed rate drains when the pace is cut; a flow that fills the queue by its window takes the freed
    /// capacity.
    pub(super) fn pace_before_undrained_queue(&mut self, seen: &Observation, now: Duration) -> Option<Rate> {
        let queue = self.standing(seen, now)?.saturating_sub(seen.min_rtt.get());
        let rtt = seen.rtt.get();
        self.standing = self.standing.filter(|standing| now.saturating_sub(standing.seen) <= rtt * 2);
        let standing = self.standing.as_mut()?;
        let stands = queue > shortest_queue(seen);
        if stands {
            standing.seen = now;
        }
        if now.saturating_sub(standing.at) < rtt {
            return None;
        }
        standing.at = now;
        if !stands {
            (standing.looks, standing.looked) = (0, [None; 2]);
            self.others = None;
            return None;
        }
        // One RTT for the cut to take effect, and one to drain; more where the queue is full and cannot grow.
        let shortest = standing.looked.into_iter().flatten().min();
        let drains = shortest.is_some_and(|shortest| queue + seen.min_rtt.get() / DRAIN_RTT_PARTS < shortest);
        standing.looks = if drains { 0 } else { standing.looks + 1 };
        standing.looked = [standing.looked[1], Some(queue)];
        let is_full = seen.retransmits > standing.lost && queue < FULL_QUEUE_FACTOR * shortest_queue(seen);
        let patience = if is_full { UNDRAINED_CHECKS_FULL } else { UNDRAINED_CHECKS };
        (standing.looks >= patience).then_some(standing.from)
    }

    /// Records that a cut drains a queue; returns the pace at which the queue first appeared.
    pub(super) fn start_draining(&mut self, from: Rate, seen: &Observation, now: Duration) -> Rate {
        // The queue is longest at the end of the observed part of the RTT.
        let at = now + seen.min_rtt.get() / QUEUE_RTT_PARTS;
        let new = Standing { at, looked: [None; 2], seen: now, from, lost: seen.retransmits, looks: 0 };
        let gone = |standing: &Standing| now.saturating_sub(standing.seen) > seen.rtt.get();
        let standing = self.standing.filter(|standing| !gone(standing)).unwrap_or(new);
        self.standing = Some(Standing { seen: now, ..standing });
        standing.from
    }

    /// Returns whether the path is congested: a competing queue stands, or losses exceed [`CONGESTION_LOSS`].
    pub(super) fn is_congested(&self, seen: &Observation, now: Duration) -> bool {
        if now < self.ignore_until {
            return false;
        }
        let (lost, sent) = (seen.retransmits - self.baseline.0, seen.sent - self.baseline.1);
        let losing = lost > STRAY_LOSS && lost.get() as f64 > CONGESTION_LOSS * sent.get() as f64;
        losing || self.has_competing_queue(seen, now)
    }

    /// Returns whether a queue stands that is longer than this connection's own probes make.
    pub(super) fn has_competing_queue(&self, seen: &Observation, now: Duration) -> bool {
        let probing = match &self.phase {
            PacerPhase::Cruise { probe, .. } => probe.queue(now),
            _ => Duration::ZERO,
        };
        self.queue(seen, now) > shortest_queue(seen).max(self.tolerated).max(probing)
    }

    /// Returns whether any queue stands, also one too short for competing traffic.
    pub(super) fn has_queue(&self, seen: &Observation, now: Duration) -> bool {
        self.queue(seen, now) > NOISE_QUEUE + seen.min_rtt.get() / 200
    }

    /// Returns the length of the standing queue.
    ///
    /// Measured above the smallest recent RTT: a permanent queue of other flows must not push the pace to its minimum.
    fn queue(&self, seen: &Observation, now: Duration) -> Duration {
        let base = self.history.least_rtt(Duration::ZERO, now).unwrap_or(seen.min_rtt.get());
        self.standing(seen, now).map_or(Duration::ZERO, |rtt| rtt.saturating_sub(base))
    }

    /// Returns the smallest RTT of the last part of an RTT, where anything was delivered in it.
    fn standing(&self, seen: &Observation, now: Duration) -> Option<Duration> {
        self.history.standing_rtt(now.saturating_sub(seen.min_rtt.get() / QUEUE_RTT_PARTS))
    }

    /// Returns the capacity left by competing traffic, from the rates of sending and delivery.
    ///
    /// A FIFO queue serves flows in proportion to their input: arrives = capacity x sent / (sent + others).
    fn left_by_others(&self, arrives: Rate, sent: Rate) -> Rate {
        match self.capacity {
            Some(capacity) if capacity > arrives && sent > arrives && arrives > Rate::default() => {
                let ratio = capacity.as_bits_per_sec() as f64 / arrives.as_bits_per_sec() as f64;
                let others = sent.scaled((ratio - 1.0).max(0.0));
                Rate::bits_per_sec(capacity.as_bits_per_sec().saturating_sub(others.as_bits_per_sec()))
            }
            _ => arrives,
        }
    }
}

/// Returns the length from which a queue belongs to competing traffic.
pub(super) fn shortest_queue(seen: &Observation) -> Duration {
    COMPETING_QUEUE + seen.min_rtt.get() / 100
}

/// Returns the lower bound of the pace after any cut.
pub(super) fn min_pace(seen: &Observation) -> Rate {
    Rate::over(MIN_PACE_PER_RTT, seen.min_rtt.get())
}
