//! Probes for capacity: sends faster for a moment, and checks an RTT later whether the RTT has risen.

use std::time::Duration;

use super::history::History;
use super::{Observation, Params};
use crate::units::{Bytes, Rate};

/// Probes for capacity above the present pace.
///
/// A probe sends at `1 + gain` times the pace until it has sent what the bottleneck forwards in `Params::probe_queue` more. On a full
/// path that data queues, and an RTT later the RTT is longer by that time; on a free one the RTT stays.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    state: ProbeState,
    gain: f64,
    /// The queue that a probe adds on a full path.
    pub(super) queue: Duration,
    /// RTTs to wait before the next probe.
    rest_rtts: u32,
    /// The mean deviation of the RTT from its minimum, in seconds, while no probe runs.
    jitter: f64,
    /// In the last probe the congestion control sent no faster than before.
    held_back: bool,
    /// Whether a probe has found the path full.
    pub(super) was_full: bool,
}

#[derive(Debug, Clone, Copy)]
enum ProbeState {
    Resting { until: Duration },
    Sending { from: Duration, to: Duration, sent: Bytes },
    Waiting { from: Duration, to: Duration, until: Duration, sent: Rate },
}

/// The weight of an observation in the jitter.
const JITTER_WEIGHT: f64 = 1.0 / 16.0;

impl Probe {
    /// Rests until `until`. A pace of less than half of the `capacity` may double at once.
    pub(super) fn new(
        params: &Params,
        queue: Duration,
        target: Rate,
        capacity: Rate,
        until: Duration,
    ) -> Self {
        let is_low = target < capacity.scaled(0.5);
        Self {
            state: ProbeState::Resting { until },
            queue,
            gain: if is_low { params.max_gain } else { params.first_gain },
            rest_rtts: 1,
            jitter: 0.0,
            held_back: false,
            was_full: false,
        }
    }

    /// Returns whether the next probe is due.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        matches!(self.state, ProbeState::Resting { until } if now >= until)
    }

    /// Postpones the next probe to `until`.
    pub(super) fn rest(&mut self, until: Duration) {
        self.state = ProbeState::Resting { until };
    }

    /// Returns whether a probe's own queue may be on the path.
    pub(super) fn is_running(&self) -> bool {
        !matches!(self.state, ProbeState::Resting { .. })
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

    /// Observes the connection, whose bottleneck forwards `capacity` as far as is known; returns the new steady pace.
    pub(super) fn observe(
        &mut self,
        params: &Params,
        target: Rate,
        capacity: Rate,
        seen: &Observation,
        history: &History,
        now: Duration,
    ) -> Rate {
        let rtt = seen.min_rtt.get();
        match self.state {
            ProbeState::Resting { until } => {
                let least = history.least_rtt(now.saturating_sub(rtt), now).unwrap_or(rtt);
                let deviation = seen.rtt.get().saturating_sub(least).as_secs_f64();
                self.jitter += JITTER_WEIGHT * (deviation - self.jitter);
                if now >= until {
                    // A smaller pace takes longer to send as much in excess.
                    let time = self.queue.mul_f64(over(capacity, target).max(1.0) / self.gain);
                    self.state = ProbeState::Sending { from: now, to: now + time.min(rtt), sent: seen.sent };
                }
                target
            }
            ProbeState::Sending { from, to, sent } if now >= to => {
                // A late observation has lengthened the probe. The congestion control may have sent less.
                let sent = Rate::over(seen.sent - sent, now - from).min(target.scaled(1.0 + self.gain));
                if sent < target.scaled(1.0 + params.min_gain / 2.0) {
                    self.held_back = true;
                    self.rest(now + rtt);
                } else {
                    // The echo lasts as long as the probe, and its end may be acknowledged late.
                    let until = now + seen.rtt.get() + self.queue * 2;
                    self.state = ProbeState::Waiting { from, to: now, until, sent };
                }
                target
            }
            ProbeState::Waiting { from, to, until, sent } if now >= until => {
                let before = history.least_rtt(from + rtt - rtt / 4, from + rtt);
                let Some((before, peak)) = before.zip(history.largest_rtt(from + rtt, until)) else {
                    // Too few acknowledgements arrived to measure the rise.
                    self.rest(now + rtt);
                    return target;
                };
                let rise = peak.saturating_sub(before).as_secs_f64();
                let (lost, all) = history.losses(from + rtt);
                let lost = lost.get() as f64 > params.loss * all.get() as f64;
                let proven = self.proven(params, target, capacity, sent, rise, (to - from).as_secs_f64());
                self.adapt(params, lost, rise, rtt, now);
                if lost { target } else { target.max(proven) }
            }
            _ => target,
        }
    }

    /// Returns the pace that has room after sending at `sent` for `time` seconds has raised the RTT by `rise` seconds.
    ///
    /// The queue grows by (sent + others) / capacity - 1. Where the jitter is so large that a full path would not stand out, nothing
    /// was measured, and the pace rises: losses then are the only evidence.
    fn proven(
        &self,
        params: &Params,
        target: Rate,
        capacity: Rate,
        sent: Rate,
        rise: f64,
        time: f64,
    ) -> Rate {
        if self.is_noisy() || rise <= self.jitter {
            return sent;
        }
        let growth = rise / time.max(1e-6);
        // The bottleneck forwards what arrives, and never less than this.
        let capacity = capacity.max(sent.scaled(1.0 / (1.0 + growth)));
        let over = capacity.scaled(growth).as_bits_per_sec();
        let left = Rate::bits_per_sec(sent.as_bits_per_sec().saturating_sub(over));
        left.min(capacity.scaled(params.headroom)).max(target)
    }

    fn is_noisy(&self) -> bool {
        self.jitter > self.queue.as_secs_f64() / 2.0
    }

    /// Raises the gain after a probe without an effect; lowers it, and rests longer, after one with an effect.
    fn adapt(&mut self, params: &Params, lost: bool, rise: f64, rtt: Duration, now: Duration) {
        let effect = self.queue.as_secs_f64() / 4.0 + self.jitter;
        if lost {
            self.queue /= 2;
        }
        if lost || (rise > effect && !self.is_noisy()) {
            self.was_full = true;
            self.rest_rtts = (2 * self.rest_rtts).min(params.max_rest_rtts);
            self.gain = (self.gain / 2.0).max(params.min_gain);
            self.rest(now + rtt * self.rest_rtts);
        } else {
            (self.gain, self.rest_rtts) = ((2.0 * self.gain).min(params.max_gain), 1);
            // Until the new pace is seen to be used.
            self.rest(now + rtt / 4);
        }
    }
}

fn over(a: Rate, b: Rate) -> f64 {
    a.as_bits_per_sec() as f64 / b.as_bits_per_sec().max(1) as f64
}
