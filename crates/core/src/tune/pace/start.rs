//! Before a pace is held: slow start is measured, a path that needs no pace has none, and the cap climbs to the rate that was measured or
//! is known.

use std::time::Duration;

use super::{Pacer, PacerPhase, Params, comes_close};
use crate::units::Rate;

impl Pacer {
    pub(super) fn listen(&mut self) {
        let rtt = self.rtt();
        let PacerPhase::Listen(trains) = &mut self.phase else { return };
        let rate = trains.observe(self.seen.goodput, rtt, self.now);
        if self.age() > rtt * Params::LISTEN_RTTS || self.needs_no_pace(rate.unwrap_or(self.capacity)) {
            self.enter(PacerPhase::Free(rate), None);
        } else if let Some(rate) = rate {
            self.begin_climb(Rate::over(self.seen.window, rtt), rate);
        } else if self.loses(Params::LOSS) {
            self.begin_drain(self.delivery());
        }
    }

    /// Climbs to the trains' `rate`, less its uncertainty.
    pub(super) fn begin_climb(&mut self, from: Rate, rate: Rate) {
        (self.capacity, self.blind_since) = (self.capacity.max(rate), None);
        let until = rate.scaled(1.0 - Params::UNCERTAINTY);
        // Nothing may have arrived in the last RTT.
        let from = from.max(self.least_pace()).min(until);
        self.enter(PacerPhase::Climb { from, since: Some(self.now), until }, Some(from));
        self.ignore_flight();
    }

    pub(super) fn free(&mut self, rate: Option<Rate>) {
        if self.rtt() < Params::MIN_RTT || !self.loses(Params::LOSS) {
            return;
        }
        self.note_short_queue(self.capacity.max(rate.unwrap_or_default()));
        if self.needs_no_pace(self.capacity) {
            return;
        }
        match rate {
            Some(rate) => self.begin_climb(self.delivery(), rate),
            None => self.begin_drain(self.delivery()),
        }
    }

    /// Notes, after losses on a path of this rate, whether its queue is short: in the last RTTs at most 0.4 RTTs, which one drain empties.
    ///
    /// Only for rates above `Params::UNPACED_FROM`: below, the path is paced in any case, and a small window leaves a long queue empty, which
    /// then looks short.
    pub(super) fn note_short_queue(&mut self, rate: Rate) {
        let rtt = self.rtt();
        let longest = self.history.rtts(self.ago((rtt * 2).max(Params::EMPTY_TIME)), self.now).max();
        let stayed_short = longest.is_some_and(|longest| longest <= rtt.mul_f64(2.0 - Params::DRAIN));
        self.queue_is_short |= rate > Params::UNPACED_FROM && stayed_short;
    }

    /// Waits until the first pace on a known path has arrived; a sender that does not reach it needs no cap.
    pub(super) fn await_first_pace(&mut self, from: Rate, until: Rate) {
        if self.is_congested() {
            self.begin_drain(from);
        } else if self.history.reaches(self.ago(self.rtt())) && comes_close(self.delivery(), from) {
            self.phase = PacerPhase::Climb { from, since: Some(self.now), until };
        } else if self.age() > self.rtt() * Params::LISTEN_RTTS {
            self.enter(PacerPhase::Free(None), None);
        }
    }

    pub(super) fn climb(&mut self, from: Rate, since: Duration, until: Rate) {
        let doublings = self.now.saturating_sub(since).as_secs_f64() / self.rtt().as_secs_f64();
        let pace = from.scaled(doublings.exp2()).min(until);
        if self.is_congested() {
            self.begin_drain(self.pace.unwrap_or(from));
        } else if pace == until {
            self.settle(until);
        } else {
            self.pace = Some(pace);
        }
    }

    /// Ignores what is in flight, for its queue is of the pace before, and its last acknowledgement may be a delayed one; and a few
    /// packets more, until the smoothed RTT has forgotten it. A path that has become slower needs longer for them than that.
    pub(super) fn ignore_flight(&mut self) {
        let delivered = self.seen.goodput + self.seen.in_flight + Params::FEW_PACKETS;
        self.shows_pace_from = (delivered, self.now + self.seen.rtt.get() * 2);
    }
}
