//! Probes for capacity: sends faster for a moment, and checks an RTT later whether the RTT has risen.

use std::time::Duration;

use super::history::History;
use super::{Observation, Params};
use crate::units::{Bytes, Rate};

/// Probes for capacity above the present pace.
///
/// A probe sends at `1 + gain` times the pace until it has sent what the bottleneck forwards in `queue` more. On a full
/// path that data queues, and an RTT later the RTT is longer by that time; on a free one the RTT stays.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    state: ProbeState,
    gain: f64,
    /// The queue that a probe adds on a full path.
    pub(super) queue: Duration,
    /// RTTs to wait before the next probe.
    rest_rtts: u32,
    /// In the last probe the congestion control sent no faster than before.
    pub(super) was_held_back: bool,
    /// Whether a probe has found the path full.
    pub(super) was_full: bool,
    /// Whether jitter hid the result of the last probe; `None` until one has ended.
    pub(super) was_hidden: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
enum ProbeState {
    Resting { until: Duration },
    Sending { from: Duration, to: Duration, sent: Bytes },
    Waiting { from: Duration, to: Duration, until: Duration, sent: Rate },
}

impl Probe {
    /// Rests until `until`; then a pace that is `low` may double at once.
    pub(super) fn new(queue: Duration, is_low: bool, until: Duration) -> Self {
        let gain = if is_low { Params::MAX_GAIN } else { 2.0 * Params::MIN_GAIN };
        let state = ProbeState::Resting { until };
        Self { state, gain, queue, rest_rtts: 1, was_held_back: false, was_full: false, was_hidden: None }
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
        target: Rate,
        capacity: Rate,
        seen: &Observation,
        history: &History,
        now: Duration,
    ) -> Rate {
        let rtt = seen.min_rtt.get();
        match self.state {
            ProbeState::Resting { until } if now >= until => {
                // A smaller pace takes longer to send as much in excess.
                let times = capacity.as_bits_per_sec() as f64 / target.as_bits_per_sec().max(1) as f64;
                let time = self.queue.mul_f64(times.max(1.0) / self.gain).min(rtt);
                self.state = ProbeState::Sending { from: now, to: now + time, sent: seen.sent };
            }
            ProbeState::Sending { from, to, sent } if now >= to => {
                // A late observation has lengthened the probe. The congestion control may have sent less.
                let sent = Rate::over(seen.sent - sent, now - from).min(target.scaled(1.0 + self.gain));
                if sent < target.scaled(1.0 + Params::MIN_GAIN / 2.0) {
                    self.was_held_back = true;
                    self.rest(now + rtt);
                } else {
                    // The echo lasts as long as the probe, and its end may be acknowledged late.
                    let until = now + seen.rtt.get() + self.queue * 2;
                    self.state = ProbeState::Waiting { from, to: now, until, sent };
                }
            }
            ProbeState::Waiting { from, to, until, sent } if now >= until => {
                let echo = from + rtt;
                let before = history.rtts(echo - rtt / 4, echo).min();
                let Some((before, peak)) = before.zip(history.rtts(echo, until).max()) else {
                    // Too few acknowledgements arrived to measure the rise.
                    self.rest(now + rtt);
                    return target;
                };
                let (rise, jitter) = (peak.saturating_sub(before), history.jitter(from, echo));
                if history.has_lost(Params::LOSS, Bytes::ZERO, echo) {
                    self.was_hidden = Some(false);
                    self.queue /= 2;
                    self.back_off(rtt, now);
                    return target;
                }
                self.was_hidden = Some(jitter > self.queue / 2);
                if self.was_hidden == Some(true) {
                    // A full path would not stand out: nothing was measured. Lasting jitter must not hold the pace down.
                    self.rest_longer(rtt, now);
                    return target.max(target.scaled(Params::BLIND_RISE).min(sent));
                }
                if rise <= self.queue / 4 + jitter {
                    (self.gain, self.rest_rtts) = ((2.0 * self.gain).min(Params::MAX_GAIN), 1);
                    // Until the new pace is seen to be used.
                    self.rest(now + rtt / 4);
                } else {
                    self.back_off(rtt, now);
                }
                let has_room = rise <= jitter;
                let proven = if has_room { sent } else { left(capacity, sent, rise, to - from) };
                return target.max(proven);
            }
            _ => {}
        }
        target
    }

    /// Slows down after a probe that has found the path full.
    fn back_off(&mut self, rtt: Duration, now: Duration) {
        self.was_full = true;
        self.rest_longer(rtt, now);
    }

    /// Lowers the gain, and rests longer.
    fn rest_longer(&mut self, rtt: Duration, now: Duration) {
        self.rest_rtts = (2 * self.rest_rtts).min(Params::REACTION_RTTS);
        self.gain = (self.gain / 2.0).max(Params::MIN_GAIN);
        self.rest(now + rtt * self.rest_rtts);
    }
}

/// Returns the pace that has room after sending at `sent` for `time` has raised the RTT by `rise`: the queue grows by
/// (sent + others) / capacity - 1.
fn left(capacity: Rate, sent: Rate, rise: Duration, time: Duration) -> Rate {
    let growth = rise.as_secs_f64() / time.as_secs_f64().max(1e-6);
    // The bottleneck forwards what arrives, and never less than this.
    let capacity = capacity.max(sent.scaled(1.0 / (1.0 + growth)));
    let over = capacity.scaled(growth).as_bits_per_sec();
    let left = Rate::bits_per_sec(sent.as_bits_per_sec().saturating_sub(over));
    left.min(capacity.scaled(Params::HEADROOM))
}
