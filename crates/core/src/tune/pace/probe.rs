//! Sending faster for a moment, and looking a round trip later whether the RTT tells of it.

use std::time::Duration;

use super::Observation;
use super::history::History;
use crate::units::{Bytes, Rate};

/// Looks for more than the pace that is held.
///
/// For a while the pace is `1 + gain` times as high, and sends what the path carries in `excess` more. Where the path is full
/// at that, it waits in the queue, and a round trip later the RTT is higher by up to `excess`; where it is not, nothing shows.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    state: ProbeState,
    /// By how much faster the next probe sends.
    gain: f64,
    /// How much longer, at most, a probe makes the queue.
    excess: Duration,
    /// How many round trips to wait before the next.
    patience: u32,
    /// The last probe sent no faster than usual.
    held_back: bool,
    /// How often the pace was trimmed since the last probe.
    trims: u32,
    /// Until when the last probe's queue drains.
    drains_until: Duration,
}

#[derive(Debug, Clone, Copy)]
enum ProbeState {
    Resting { until: Duration },
    Sending { from: Duration, to: Duration, sent: Bytes, retransmits: Bytes },
    Waiting { from: Duration, to: Duration, until: Duration, sent: Rate, retransmits: Bytes },
}

const EXCESS: Duration = Duration::from_micros(3500);
/// Less would not stand out from [`DOUBT`].
const LEAST_EXCESS: Duration = Duration::from_micros(1600);
const GAINS: (f64, f64) = (0.125, 1.0);
/// At the capacity; more at a pace that is a part of it.
const BOLD: f64 = 0.5;
/// Of the first probe, and after a change: what a train told may be far too little, or whoever came has gone again.
const FIRST_GAIN: f64 = 0.25;
/// A pace so many times below the capacity takes so many times as long for the excess; one that is lower yet, no longer.
const SLOWEST: f64 = 8.0;
/// The pace over the highest rate that the path was seen to pass.
const BEYOND: f64 = 1.25;
/// The share of it that is as good as all.
const NEAR: f64 = 0.95;
/// The share of the pace that must be used.
const USED: f64 = 0.8;
/// A longer queue by less than this share of the excess is noise.
const TELLS: f64 = 0.25;
/// The queue may have become longer by this than the RTT tells. A short probe proves less for that.
const DOUBT: Duration = Duration::from_micros(800);
/// Where a pace that is near the capacity has a queue before it, it is a little too high, and becomes this part of it:
const TRIMMED: f64 = 0.97;
/// near is from this share of the capacity on,
const FULL: f64 = 0.9;
/// and so many times at most before a probe: the queue may be somebody else's.
const MOST_TRIMS: u32 = 3;
/// A queue drains in so many times its length, where the pace is 97 % of the capacity.
const DRAINS: u32 = 32;
/// How long after its round trip a probe may still be felt.
const AFTER: Duration = Duration::from_millis(8);
const MOST_PATIENCE: u32 = 4;

impl Probe {
    /// Rests until `until`.
    pub(super) fn new(until: Duration) -> Self {
        Self {
            state: ProbeState::Resting { until },
            gain: FIRST_GAIN,
            excess: EXCESS,
            patience: 2,
            held_back: false,
            trims: 0,
            drains_until: Duration::ZERO,
        }
    }

    /// Gives up a probe that is under way, and rests until `until`: the path has changed.
    pub(super) fn put_off(&mut self, until: Duration) {
        self.state = ProbeState::Resting { until };
        (self.gain, self.patience, self.trims) = (FIRST_GAIN, 2, 0);
    }

    /// Says whether it has rested: only then does a queue of our own matter.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        matches!(self.state, ProbeState::Resting { until } if now >= until)
    }

    /// Returns how long a queue may be that is of a probe's making.
    pub(super) fn queue(&self, now: Duration) -> Duration {
        let rests = matches!(self.state, ProbeState::Resting { .. }) && now >= self.drains_until;
        if rests { Duration::ZERO } else { self.excess + DOUBT }
    }

    /// Says, once, whether the last probe was of no use because the congestion control sent no faster.
    pub(super) fn was_held_back(&mut self) -> bool {
        std::mem::take(&mut self.held_back)
    }

    /// Returns the pace to have now, where `target` is held.
    pub(super) fn pace(&self, target: Rate, now: Duration) -> Rate {
        match self.state {
            ProbeState::Sending { to, .. } if now < to => target.scaled(1.0 + self.gain),
            _ => target,
        }
    }

    /// Observes, where a queue stands or not; returns the pace to hold from now on.
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
            // Where less is sent than the pace allows, a faster pace would change nothing.
            ProbeState::Resting { until }
                if now >= until && history.delivery_rate(now.saturating_sub(rtt)) < target.scaled(USED) =>
            {
                self.state = ProbeState::Resting { until: now + rtt };
                target
            }
            ProbeState::Resting { until } if now >= until => {
                let is_full = capacity.is_some_and(|capacity| target > capacity.scaled(FULL));
                if stands && is_full && self.trims < MOST_TRIMS {
                    self.trims += 1;
                    self.state = ProbeState::Resting { until: now + rtt * 2 };
                    return target.scaled(TRIMMED);
                }
                self.trims = 0;
                let slower = slower(target, capacity);
                // No shorter than a look at it or two.
                self.gain = self.gain.min(slower * BOLD);
                let to = now + self.excess.mul_f64(slower / self.gain);
                self.state =
                    ProbeState::Sending { from: now, to, sent: seen.sent, retransmits: seen.retransmits };
                target
            }
            ProbeState::Sending { from, to, sent, retransmits } if now >= to => {
                let (sent, asked) =
                    (Rate::over(seen.sent - sent, now - from), target.scaled(1.0 + self.gain));
                // The congestion control may have paced it lower; what is little lower is by the edges of the time.
                let sent = if sent > asked.scaled(NEAR) { asked } else { sent };
                if sent < target.scaled(1.0 + self.gain / 2.0) {
                    // Near what the bottleneck was seen to pass there is little to find.
                    self.held_back = capacity.is_none_or(|capacity| target < capacity.scaled(NEAR));
                    self.state = ProbeState::Resting { until: now + rtt };
                    return target;
                }
                // `now`, not `to`: a look that came late has sent for longer.
                let until = now + seen.rtt.get() + AFTER;
                self.state = ProbeState::Waiting { from, to: now, until, sent, retransmits };
                target
            }
            ProbeState::Waiting { from, to, until, sent, retransmits } if now >= until => {
                let before = history.least_rtt((from + rtt).saturating_sub(rtt / 4), from + rtt);
                let Some((before, peak)) = before.zip(history.largest_rtt(from + rtt, until)) else {
                    // Acknowledgements came too seldom to tell.
                    self.state = ProbeState::Resting { until: now + rtt };
                    return target;
                };
                let rise = peak.saturating_sub(before);
                let part = |queue: Duration| queue.as_secs_f64() / (to - from).as_secs_f64().max(1e-6);
                let (left, doubted) = left(sent, part(rise), capacity);
                let doubt = doubted.min(target.scaled(SLOWEST)).scaled(part(DOUBT));
                let proven = left.as_bits_per_sec().saturating_sub(doubt.as_bits_per_sec());
                let most = capacity.map_or(Rate::bits_per_sec(u64::MAX), |capacity| capacity.scaled(BEYOND));
                let lost = seen.retransmits > retransmits;
                self.learn(rise, lost, now, rtt);
                if lost { target } else { target.max(Rate::bits_per_sec(proven).min(most)) }
            }
            _ => target,
        }
    }

    /// Becomes bolder after a probe that was not felt, and more patient after one that was.
    fn learn(&mut self, rise: Duration, lost: bool, now: Duration, rtt: Duration) {
        let felt = lost || rise > self.excess.mul_f64(TELLS);
        self.excess = if lost { self.excess / 2 } else { self.excess * 2 }.clamp(LEAST_EXCESS, EXCESS);
        self.drains_until = now + rise * DRAINS;
        if felt {
            // A shorter probe leaves more in doubt: then a longer one tells more, and soon.
            self.patience = if self.gain > GAINS.0 { 1 } else { (2 * self.patience).min(MOST_PATIENCE) };
            self.gain = (self.gain / 2.0).max(GAINS.0);
            self.state = ProbeState::Resting {
                until: self.drains_until.min(now + rtt * 8).max(now + rtt * self.patience),
            };
        } else {
            self.gain = (2.0 * self.gain).min(GAINS.1);
            self.patience = 1;
            self.state = ProbeState::Resting { until: now };
        }
    }
}

/// Returns by how much longer a probe takes for what the path carries, where the pace is only a part of that.
fn slower(target: Rate, capacity: Option<Rate>) -> f64 {
    let part = |capacity: Rate| capacity.as_bits_per_sec() as f64 / target.as_bits_per_sec().max(1) as f64;
    capacity.map_or(1.0, part).clamp(1.0, SLOWEST)
}

/// Returns what others leave, where sending at `sent` made the queue longer by this share of the time that it took, and the
/// bottleneck's rate, as far as that is known.
///
/// A queue grows by what comes over the bottleneck's rate: grew = (sent + others) / capacity - 1. That the capacity is no less
/// than sent / (1 + grew) is certain, and all that is known where it is not: there are taken to be no others.
fn left(sent: Rate, grew: f64, capacity: Option<Rate>) -> (Rate, Rate) {
    let least = sent.scaled(1.0 / (1.0 + grew));
    let capacity = capacity.map_or(least, |capacity| capacity.max(least));
    let over = capacity.scaled(grew).as_bits_per_sec();
    (Rate::bits_per_sec(sent.as_bits_per_sec().saturating_sub(over)), capacity)
}
