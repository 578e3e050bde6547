//! `Cruise`: a constant pace, raised where a probe finds capacity and cut where another flow starts.

use std::time::Duration;

use super::congestion::DEEPEST_CUT;
use super::probe::Probe;
use super::{Observation, Pacer, PacerPhase};
use crate::tune::packet_train::MAX_TRAIN_RATE;
use crate::units::Rate;

impl Pacer {
    /// Starts to cruise at this pace.
    pub(super) fn settle(&mut self, target: Rate, seen: &Observation, now: Duration) {
        self.baseline = (seen.retransmits, seen.sent);
        self.ignore_until = now + seen.rtt.get();
        self.phase = PacerPhase::Cruise { target, probe: Probe::new(self.ignore_until + seen.min_rtt.get()) };
        self.pace = Some(target);
        self.tolerated = Duration::ZERO;
        (self.cut, self.standing, self.held_back) = (None, None, None);
    }

    /// Follows the capacity of the path.
    pub(super) fn cruise(&mut self, seen: &Observation, now: Duration) {
        if let Some(from) = self.pace_before_undrained_queue(seen, now) {
            self.begin_to_share(from, now);
            return;
        }
        if self.is_congested(seen, now) {
            let PacerPhase::Cruise { target, .. } = self.phase else { return };
            if self.standing.is_none()
                && self.competing_flows_paused(seen, now)
                && self.has_competing_queue(seen, now)
            {
                // The competing flows are still there: the queue would not drain.
                self.begin_to_share(target, now);
                return;
            }
            self.cut(target, DEEPEST_CUT, seen, now);
        }
        if now < self.ignore_until {
            self.baseline = (seen.retransmits, seen.sent);
            self.recut(seen, now);
            return;
        }
        self.cut = None;
        let PacerPhase::Cruise { probe, .. } = &self.phase else { return };
        let stands = probe.is_due(now) && self.has_queue(seen, now);
        let PacerPhase::Cruise { target, probe } = &mut self.phase else { return };
        *target = probe.observe(*target, self.capacity, stands, seen, &self.history, now);
        if *target > MAX_TRAIN_RATE {
            // The train's rate was too low. A path this fast is not paced.
            (self.phase, self.pace) = (PacerPhase::Off, None);
            return;
        }
        self.pace = Some(probe.pace(*target, now));
        let passed = self.recent_delivery(seen, now);
        if self.capacity.is_some_and(|capacity| passed > capacity) {
            // Delayed acknowledgements arrive faster than the data was delivered.
            let rtt = seen.min_rtt.get();
            let sent = self.history.sending_rate(now.saturating_sub(rtt * 2), now.saturating_sub(rtt));
            self.capacity = self.capacity.max(Some(passed.min(sent)));
        }
    }
}
