//! Holding a pace: faster where a probe finds room, slower where somebody comes.

use std::time::Duration;

use super::congestion::DEEPEST_CUT;
use super::probe::Probe;
use super::{Observation, Pacer, Phase};
use crate::units::Rate;

impl Pacer {
    /// Begins to cruise at this pace.
    pub(super) fn settle(&mut self, target: Rate, seen: &Observation, now: Duration) {
        self.counted = (seen.retransmits, seen.sent);
        self.deaf_until = now + seen.rtt.get();
        self.phase = Phase::Cruise { target, probe: Probe::new(self.deaf_until + seen.min_rtt.get()) };
        self.pace = Some(target);
        self.tolerated = Duration::ZERO;
        (self.cut, self.standing, self.held_back) = (None, None, None);
    }

    /// Follows what the path holds.
    pub(super) fn cruise(&mut self, seen: &Observation, now: Duration) {
        if let Some(from) = self.yielded_in_vain(seen, now) {
            self.begin_to_share(from, now);
            return;
        }
        if self.is_congested(seen, now) {
            let Phase::Cruise { target, .. } = self.phase else { return };
            if self.standing.is_none() && self.others_pause(seen, now) && self.others_queue(seen, now) {
                // They have not gone: nothing drains when room is made.
                self.begin_to_share(target, now);
                return;
            }
            self.cut(target, DEEPEST_CUT, seen, now);
        }
        if now < self.deaf_until {
            self.counted = (seen.retransmits, seen.sent);
            self.recut(seen, now);
            return;
        }
        self.cut = None;
        let Phase::Cruise { probe, .. } = &self.phase else { return };
        let stands = probe.is_due(now) && self.has_queue(seen, now);
        let Phase::Cruise { target, probe } = &mut self.phase else { return };
        *target = probe.observe(*target, self.capacity, stands, seen, &self.history, now);
        self.pace = Some(probe.pace(*target, now));
        let passed = self.passed(seen, now);
        if self.capacity.is_some_and(|capacity| passed > capacity) {
            // Acknowledgements that were held up arrive faster than what they acknowledge.
            let rtt = seen.min_rtt.get();
            let sent = self.history.sending_rate(now.saturating_sub(rtt * 2), now.saturating_sub(rtt));
            self.capacity = self.capacity.max(Some(passed.min(sent)));
        }
    }
}
