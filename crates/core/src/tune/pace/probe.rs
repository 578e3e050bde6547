//! Probes for capacity: sends faster for a moment, and checks an RTT later whether the RTT has risen.

use std::time::Duration;

use super::Observation;
use super::history::History;
use crate::units::{Bytes, Rate};

/// Probes for capacity above the present pace.
///
/// A probe sends at `1 + gain` times the pace until it has sent what the path carries in the time `excess` more. On a
/// full path that data queues, and an RTT later the RTT is higher by up to `excess`; otherwise the RTT stays.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    state: ProbeState,
    /// The increase of the pace in the next probe, relative.
    gain: f64,
    /// The longest queue that a probe adds.
    excess: Duration,
    /// RTTs to wait before the next probe.
    rest_rtts: u32,
    /// In the last probe the congestion control sent no faster than before.
    held_back: bool,
    /// Trims of the pace since the last probe.
    trims: u32,
    /// When the last probe's queue has drained.
    drains_until: Duration,
}

#[derive(Debug, Clone, Copy)]
enum ProbeState {
    Resting { until: Duration },
    Sending { from: Duration, to: Duration, sent: Bytes, retransmits: Bytes },
    Waiting { from: Duration, to: Duration, until: Duration, sent: Rate, retransmits: Bytes },
}

/// The longest queue that a probe adds.
const MAX_EXCESS: Duration = Duration::from_micros(3500);
/// The shortest: less would not exceed [`RTT_UNCERTAINTY`] clearly.
const MIN_EXCESS: Duration = Duration::from_micros(1600);
/// The least and the largest gain.
const GAIN_RANGE: (f64, f64) = (0.125, 1.0);
/// The largest gain at the capacity; larger in proportion at a pace below it.
const FULL_PATH_GAIN: f64 = 0.5;
/// The gain of the first probe, and after a cut: the train's rate may be too low, or the competing traffic may have ended.
const FIRST_GAIN: f64 = 0.25;
/// A pace below the capacity needs longer to add the excess, by up to this factor.
const MAX_SLOWDOWN: f64 = 8.0;
/// The pace may exceed the highest observed rate of delivery by this factor.
const CAPACITY_HEADROOM: f64 = 1.25;
/// A rate of at least this share of another counts as equal.
const NEAR_CAPACITY: f64 = 0.95;
/// No probe runs while less than this share of the pace is delivered.
const MIN_USED_SHARE: f64 = 0.8;
/// A rise of the RTT by less than this share of the excess is noise.
const NOTICEABLE_RISE: f64 = 0.25;
/// The queue may have grown by this more than the RTT shows, so that a short probe proves less.
const RTT_UNCERTAINTY: Duration = Duration::from_micros(800);
/// A pace near the capacity with a standing queue is a little too high, and is multiplied by this,
const TRIM_FACTOR: f64 = 0.97;
/// from this share of the capacity on,
const TRIM_FROM_CAPACITY: f64 = 0.9;
/// at most this often between two probes: the queue may belong to another flow.
const MAX_TRIMS: u32 = 3;
/// A queue drains in this multiple of its length, with a pace of 97 % of the capacity.
const PROBE_DRAIN_FACTOR: u32 = 32;
/// How long after its RTT a probe may still affect the RTT.
const PROBE_ECHO_TIME: Duration = Duration::from_millis(8);
/// The longest rest between two probes, in RTTs.
const MAX_REST_RTTS: u32 = 4;

impl Probe {
    /// Rests until `until`.
    pub(super) fn new(until: Duration) -> Self {
        Self {
            state: ProbeState::Resting { until },
            gain: FIRST_GAIN,
            excess: MAX_EXCESS,
            rest_rtts: 2,
            held_back: false,
            trims: 0,
            drains_until: Duration::ZERO,
        }
    }

    /// Aborts a running probe, and rests until `until`: the path has changed.
    pub(super) fn postpone(&mut self, until: Duration) {
        self.state = ProbeState::Resting { until };
        (self.gain, self.rest_rtts, self.trims) = (FIRST_GAIN, 2, 0);
    }

    /// Returns whether the next probe is due.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        matches!(self.state, ProbeState::Resting { until } if now >= until)
    }

    /// Returns the longest queue that the probe can have caused.
    pub(super) fn queue(&self, now: Duration) -> Duration {
        let rests = matches!(self.state, ProbeState::Resting { .. }) && now >= self.drains_until;
        if rests { Duration::ZERO } else { self.excess + RTT_UNCERTAINTY }
    }

    /// Returns, once, whether the congestion control sent no faster in the last probe.
    pub(super) fn was_held_back(&mut self) -> bool {
        std::mem::take(&mut self.held_back)
    }

    /// Returns the pace to set now, for a steady pace of `target`.
    pub(super) fn pace(&self, target: Rate, now: Duration) -> Rate {
        match self.state {
            ProbeState::Sending { to, .. } if now < to => target.scaled(1.0 + self.gain),
            _ => target,
        }
    }

    /// Observes the connection, and whether a queue `stands`; returns the new steady pace.
    pub(super) fn observe(
        &mut self,
        target: Rate,
        capacity: Option<Rate>,
        stands: bool,
        seen: &Observation,
        history: &History,
        now: Duration,
    ) -> Rate {
        let rtt = seen.min_rtt.get();
        match self.state {
            // A sender that does not use its pace would not send faster in a probe.
            ProbeState::Resting { until }
                if now >= until
                    && history.delivery_rate(now.saturating_sub(rtt)) < target.scaled(MIN_USED_SHARE) =>
            {
                self.state = ProbeState::Resting { until: now + rtt };
                target
            }
            ProbeState::Resting { until } if now >= until => {
                let is_full = capacity.is_some_and(|capacity| target > capacity.scaled(TRIM_FROM_CAPACITY));
                if stands && is_full && self.trims < MAX_TRIMS {
                    self.trims += 1;
                    self.state = ProbeState::Resting { until: now + rtt * 2 };
                    return target.scaled(TRIM_FACTOR);
                }
                self.trims = 0;
                let slower = slower(target, capacity);
                // A larger gain would end the probe within an observation or two.
                self.gain = self.gain.min(slower * FULL_PATH_GAIN);
                let to = now + self.excess.mul_f64(slower / self.gain);
                self.state =
                    ProbeState::Sending { from: now, to, sent: seen.sent, retransmits: seen.retransmits };
                target
            }
            ProbeState::Sending { from, to, sent, retransmits } if now >= to => {
                let (sent, asked) =
                    (Rate::over(seen.sent - sent, now - from), target.scaled(1.0 + self.gain));
                // The congestion control may have sent less; a small difference is due to the time's rounding.
                let sent = if sent > asked.scaled(NEAR_CAPACITY) { asked } else { sent };
                if sent < target.scaled(1.0 + self.gain / 2.0) {
                    // Near the capacity there is little to find.
                    self.held_back = capacity.is_none_or(|capacity| target < capacity.scaled(NEAR_CAPACITY));
                    self.state = ProbeState::Resting { until: now + rtt };
                    return target;
                }
                // `now`, not `to`: a late observation has lengthened the probe.
                let until = now + seen.rtt.get() + PROBE_ECHO_TIME;
                self.state = ProbeState::Waiting { from, to: now, until, sent, retransmits };
                target
            }
            ProbeState::Waiting { from, to, until, sent, retransmits } if now >= until => {
                let before = history.least_rtt((from + rtt).saturating_sub(rtt / 4), from + rtt);
                let Some((before, peak)) = before.zip(history.largest_rtt(from + rtt, until)) else {
                    // Too few acknowledgements arrived to measure the rise.
                    self.state = ProbeState::Resting { until: now + rtt };
                    return target;
                };
                let rise = peak.saturating_sub(before);
                let part = |queue: Duration| queue.as_secs_f64() / (to - from).as_secs_f64().max(1e-6);
                let (left, doubted) = left(sent, part(rise), capacity);
                let doubt = doubted.min(target.scaled(MAX_SLOWDOWN)).scaled(part(RTT_UNCERTAINTY));
                let proven = left.as_bits_per_sec().saturating_sub(doubt.as_bits_per_sec());
                let most = capacity
                    .map_or(Rate::bits_per_sec(u64::MAX), |capacity| capacity.scaled(CAPACITY_HEADROOM));
                let lost = seen.retransmits > retransmits;
                self.adapt(rise, lost, now, rtt);
                if lost { target } else { target.max(Rate::bits_per_sec(proven).min(most)) }
            }
            _ => target,
        }
    }

    /// Raises the gain after a probe without an effect; lowers it, and rests longer, after one with an effect.
    fn adapt(&mut self, rise: Duration, lost: bool, now: Duration, rtt: Duration) {
        let felt = lost || rise > self.excess.mul_f64(NOTICEABLE_RISE);
        self.excess = if lost { self.excess / 2 } else { self.excess * 2 }.clamp(MIN_EXCESS, MAX_EXCESS);
        self.drains_until = now + rise * PROBE_DRAIN_FACTOR;
        if felt {
            // A shorter probe is less certain: a longer one follows soon.
            self.rest_rtts =
                if self.gain > GAIN_RANGE.0 { 1 } else { (2 * self.rest_rtts).min(MAX_REST_RTTS) };
            self.gain = (self.gain / 2.0).max(GAIN_RANGE.0);
            self.state = ProbeState::Resting {
                until: self.drains_until.min(now + rtt * 8).max(now + rtt * self.rest_rtts),
            };
        } else {
            self.gain = (2.0 * self.gain).min(GAIN_RANGE.1);
            self.rest_rtts = 1;
            self.state = ProbeState::Resting { until: now };
        }
    }
}

/// Returns the factor by which a probe takes longer at a pace below the capacity.
fn slower(target: Rate, capacity: Option<Rate>) -> f64 {
    let part = |capacity: Rate| capacity.as_bits_per_sec() as f64 / target.as_bits_per_sec().max(1) as f64;
    capacity.map_or(1.0, part).clamp(1.0, MAX_SLOWDOWN)
}

/// Returns the capacity left by competing traffic, and the bottleneck's rate as far as known, after sending at `sent` has
/// lengthened the queue by `grew` of the time it took.
///
/// grew = (sent + others) / capacity - 1. The capacity is at least sent / (1 + grew), which is used where it is unknown,
/// as if there were no other traffic.
fn left(sent: Rate, grew: f64, capacity: Option<Rate>) -> (Rate, Rate) {
    let least = sent.scaled(1.0 / (1.0 + grew));
    let capacity = capacity.map_or(least, |capacity| capacity.max(least));
    let over = capacity.scaled(grew).as_bits_per_sec();
    (Rate::bits_per_sec(sent.as_bits_per_sec().saturating_sub(over)), capacity)
}
