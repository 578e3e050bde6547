//! Beside other traffic: drains a queue to see whose it is, and shares the path with flows that fill it by their windows.

use std::time::Duration;

use super::{Left, Observation, Pacer, PacerPhase, least_pace, queue_threshold};
use crate::units::Rate;

/// A queue is drained for this many RTTs at most.
const MAX_DRAIN_RTTS: f64 = 4.0;
/// The cap beside others doubles in this many RTTs.
const SHARE_DOUBLING_RTTS: f64 = 8.0;

impl Pacer {
    /// Drains a queue that a pace of `before` has met.
    pub(super) fn begin_drain(&mut self, before: Rate, seen: &Observation, now: Duration) {
        self.phase = PacerPhase::Drain { before, since: now, left: None };
        self.pace = Some(before.scaled(self.params.drain).max(least_pace(seen)));
    }

    pub(super) fn drain(
        &mut self,
        before: Rate,
        since: Duration,
        left: Option<Left>,
        seen: &Observation,
        now: Duration,
    ) {
        let (rtt, data_rtt) = (seen.min_rtt.get(), seen.rtt.get());
        let least = least_pace(seen);
        let Some(Left { rate, drained }) = left else {
            if now.saturating_sub(since) >= data_rtt {
                // What has arrived since was sent an RTT before.
                let sent = self.history.sending_rate(since.saturating_sub(data_rtt), since);
                let arrives = self.history.delivery_rate(since);
                // One measurement does not give up most of what arrives.
                let least = least.max(arrives.scaled(self.params.drain));
                let rate = self.left_by_others(arrives, sent);
                let rate = rate.scaled(self.params.headroom).min(before).max(least);
                let drain = rate.scaled(1.0 - self.params.drain).as_bits_per_sec() as f64;
                let rtts = self.queue_above(rtt, seen, now).as_secs_f64() / rtt.as_secs_f64()
                    * (self.capacity.as_bits_per_sec() as f64 / drain.max(1.0));
                let drained = now + rtt.mul_f64(rtts.min(MAX_DRAIN_RTTS));
                self.pace = Some(rate.scaled(self.params.drain).max(least));
                self.phase = PacerPhase::Drain { before, since, left: Some(Left { rate, drained }) };
            }
            return;
        };
        if now >= drained {
            self.pace = Some(rate);
        }
        if now < drained + data_rtt + rtt.mul_f64(self.params.standing) {
            return;
        }
        if self.queue_above(rtt, seen, now) > queue_threshold(&self.params, seen) {
            self.begin_to_share(rate, seen, now);
        } else {
            let (lost, sent) = self.history.losses(now.saturating_sub(rtt));
            self.stray_loss = self.stray_loss.max(lost.get() as f64 / sent.get().max(1) as f64);
            self.settle(rate, seen, now);
        }
    }

    pub(super) fn begin_to_share(&mut self, from: Rate, seen: &Observation, now: Duration) {
        let restart = self.shared.is_none().then(|| now + seen.rtt.get() * self.params.restart_rtts);
        self.shared = Some(now);
        self.phase = PacerPhase::Share { from, since: Some(now), restart };
        self.pace = Some(from);
    }

    pub(super) fn share(&mut self, from: Rate, since: Option<Duration>, seen: &Observation, now: Duration) {
        let rtt = seen.min_rtt.get();
        let since = since.unwrap_or(now);
        if let PacerPhase::Share { since: begun, .. } = &mut self.phase {
            *begun = Some(since);
        }
        let doublings = now.saturating_sub(since).as_secs_f64() / rtt.as_secs_f64() / SHARE_DOUBLING_RTTS;
        self.pace = Some(from.scaled(doublings.exp2())).filter(|pace| *pace < self.capacity.scaled(2.0));
        let quiet = (rtt * self.params.empty_rtts).max(self.params.empty_time);
        if now.saturating_sub(since) < quiet {
            return;
        }
        let looked = now.saturating_sub(quiet);
        let Some(longest) = self.history.largest_rtt(looked, now) else { return };
        let delivered = self.history.delivery_rate(looked);
        if longest <= rtt + queue_threshold(&self.params, seen) {
            self.shared = Some(now);
            self.settle(delivered.max(least_pace(seen)), seen, now);
        } else if now.saturating_sub(since) > rtt * self.params.recheck_rtts {
            self.begin_drain(delivered, seen, now);
        }
    }

    /// Returns the capacity left by other traffic, where `arrives` of `sent`.
    ///
    /// A FIFO queue serves flows in proportion to their input: arrives = capacity x sent / (sent + others).
    fn left_by_others(&self, arrives: Rate, sent: Rate) -> Rate {
        if arrives >= self.capacity.min(sent) {
            return arrives;
        }
        let ratio = self.capacity.as_bits_per_sec() as f64 / arrives.as_bits_per_sec().max(1) as f64;
        let others = sent.scaled(ratio - 1.0).as_bits_per_sec();
        Rate::bits_per_sec(self.capacity.as_bits_per_sec().saturating_sub(others))
    }
}
