//! Beside other traffic: drains a queue to see whose it is, and shares the path with flows that fill it whatever this one sends.

use std::time::Duration;

use super::{Pacer, PacerPhase, Params, comes_close};
use crate::units::Rate;

impl Pacer {
    /// Drains a queue that has met a pace of `before`: by no more than it takes, twice to be sure, where that is nearly all of the path and all arrives that
    /// was sent. Then other traffic takes nothing, and a host that stopped for a moment has sent a burst, which such a pace drains slowly.
    pub(super) fn begin_ease(&mut self, before: Rate) {
        let depth = 1.0 - 2.0 * self.queue().as_secs_f64() / self.rtt().as_secs_f64();
        let (rtt, time) = (self.seen.rtt.get(), self.rtt().mul_f64(Params::STANDING / 2.0));
        let sent = self.history.sending_rate(self.ago(rtt + time), self.ago(rtt));
        let all_arrives = self.history.delivery_rate(self.ago(time)) >= sent && !self.loses(Params::LOSS);
        if comes_close(before, self.capacity) && all_arrives && depth > Params::DRAIN {
            self.enter(PacerPhase::Ease { before }, Some(before.scaled(depth)));
        } else {
            self.begin_drain(before);
        }
    }

    /// Eases for an RTT; an RTT later the queue is gone, or of other traffic.
    pub(super) fn ease(&mut self, before: Rate) {
        let (rtt, age) = (self.seen.rtt.get(), self.age());
        if self.loses(Params::LOSS) {
            return self.begin_drain(before);
        }
        if age >= rtt {
            self.pace = Some(before);
        }
        if age < rtt * 2 {
            return;
        }
        if self.queue() > self.queue_threshold() {
            self.begin_drain(before);
        } else {
            self.settle(before);
            if let PacerPhase::Cruise { probe, .. } = &mut self.phase {
                // As the queue has shown.
                probe.was_full = true;
            }
        }
    }

    /// Drains a queue that a pace of `before` has met.
    pub(super) fn begin_drain(&mut self, before: Rate) {
        if self.loses(Params::LOSS) {
            self.note_short_queue(self.capacity);
        }
        let pace = before.scaled(Params::DRAIN).max(self.least_pace());
        self.enter(PacerPhase::Drain { before, left: None }, Some(pace));
    }

    /// Measures what others leave, once the effect of the drain is seen.
    pub(super) fn measure_others(&mut self, before: Rate) {
        let (rtt, age) = (self.seen.rtt.get(), self.age());
        if age < rtt {
            return;
        }
        // What has arrived since was sent an RTT before.
        let since = self.ago(age);
        let sent = self.history.sending_rate(since.saturating_sub(rtt), since);
        let arrives = self.history.delivery_rate(since);
        // One measurement does not give up most of what arrives.
        let least = self.least_pace().max(arrives.scaled(Params::DRAIN));
        // `left_by_others` multiplies the error of `arrives` by capacity / arrives. Where nearly all arrives that was sent, on a small share
        // of the path and without losses, the result would be that error.
        let is_certain = !comes_close(arrives, sent)
            || arrives >= self.capacity.scaled(1.0 - Params::DRAIN)
            || self.loses(Params::LOSS);
        let left = self.left_by_others(arrives, sent).scaled(Params::HEADROOM).min(before);
        if !is_certain {
            self.blind_since.get_or_insert(self.now);
        }
        let rate = if is_certain { left.max(least) } else { before };
        let drain = rate.scaled(1.0 - Params::DRAIN).as_bits_per_sec().max(1) as f64;
        let time = self.queue_above(self.rtt()).mul_f64(self.capacity.as_bits_per_sec() as f64 / drain);
        self.pace = Some(rate.scaled(Params::DRAIN).max(least));
        let drained = self.now + time.min(self.rtt() * Params::REACTION_RTTS);
        self.phase = PacerPhase::Drain { before, left: Some((rate, drained)) };
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

    /// Drains until `drained`; then tries whether `rate` has room.
    pub(super) fn drain(&mut self, rate: Rate, drained: Duration) {
        if self.now >= drained {
            self.pace = Some(rate);
        }
        if self.now < drained + self.seen.rtt.get() + self.rtt().mul_f64(Params::STANDING) {
            return;
        }
        if self.queue_above(self.rtt()) > self.queue_threshold() || self.loses(Params::LOSS) {
            self.enter(PacerPhase::Share, None);
        } else {
            self.settle(rate);
        }
    }

    /// Waits until the other flows have ended: nothing is lost, and no more of the RTTs show a queue than jitter explains. The cap then climbs
    /// to what the path is known to carry. Or until nearly all of the path is this connection's, which a drain checks.
    ///
    /// While they run there is no drain: BBR flows take the capacity that it frees, and give it back only after hundreds of RTTs.
    pub(super) fn share(&mut self) {
        let (rtt, age) = (self.rtt(), self.age());
        let quiet = (rtt * Params::REACTION_RTTS).max(Params::EMPTY_TIME);
        if age < quiet {
            return;
        }
        let since = self.ago(quiet);
        let Some(queued) = self.history.share_above(rtt + self.queue_threshold(), since) else { return };
        let delivered = self.history.delivery_rate(since);
        let has_lost = self.history.has_lost(Params::LOSS, Params::FEW_PACKETS, since);
        if queued <= Params::UNCERTAINTY && !has_lost {
            if comes_close(delivered, self.capacity) {
                self.settle(delivered);
            } else {
                self.begin_climb(delivered, self.capacity);
            }
        } else if age > rtt * Params::RECHECK_RTTS && comes_close(delivered, self.capacity) {
            self.begin_drain(delivered);
        }
    }

    /// Returns, once, whether other flows take more than half of the path when their slow start has ended: this connection's, which the
    /// cap had ended, then goes on.
    pub(super) fn yields_too_much(&mut self) -> bool {
        let is_due = matches!(self.phase, PacerPhase::Share)
            && !self.has_restarted
            && self.age() >= self.seen.rtt.get() * Params::REACTION_RTTS;
        self.has_restarted |= is_due;
        is_due && self.delivery() < self.capacity.scaled(0.5)
    }

    pub(super) fn least_pace(&self) -> Rate {
        Rate::over(Params::LEAST_PER_RTT, self.rtt())
    }
}
