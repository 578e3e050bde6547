//! Up to the bottleneck's rate without overflowing its queue: from what slow start shows, or from what an earlier transfer found.

use std::time::Duration;

use super::congestion::{DEEPEST_CUT, NOTICED};
use super::{Observation, Pacer, Phase, initial_pace};
use crate::tune::packet_train::MAX_TRAIN_RATE;
use crate::units::Rate;

/// The pace over the bottleneck's rate that a train told: room for what the train had not seen.
pub(super) const ROOM: f64 = 0.85;
/// The share of the first pace that must arrive before a known rate is believed.
const CONFIRMED: f64 = 0.8;

impl Pacer {
    /// Waits until what was sent at the first pace arrives.
    pub(super) fn trust(&mut self, known: Rate, seen: &Observation, late: bool, now: Duration) {
        let pace = initial_pace(known);
        if self.is_congested(seen, now) {
            self.settle(pace, seen, now);
            // It never was held on this connection: all of it may be too much.
            self.cut(pace, 0.0, seen, now);
        } else if self.round_trip(seen, now).is_some_and(|arrives| arrives >= pace.scaled(CONFIRMED)) {
            self.counted = (seen.retransmits, seen.sent);
            self.phase = Phase::Climb { from: pace, since: Some(now), most: Some(known) };
        } else if late {
            // Whoever does not make use of it, or cannot, needs no pacing.
            (self.phase, self.pace) = (Phase::Off, None);
        }
    }

    /// Waits until a train tells the bottleneck's rate.
    pub(super) fn listen(&mut self, seen: &Observation, told: Option<Rate>, late: bool, now: Duration) {
        let window = Rate::over(seen.window, seen.min_rtt.get());
        let Some(rate) = told else {
            let brought = self.passed(seen, now);
            if late || brought > MAX_TRAIN_RATE {
                self.phase = Phase::Off;
            } else if seen.retransmits > self.counted.0 {
                // A queue too small even for clumps: probes find the rate from where slow start has come to.
                self.settle(brought.max(window.min(brought.scaled(2.0))), seen, now);
            }
            return;
        };
        if rate > MAX_TRAIN_RATE {
            self.phase = Phase::Off;
            return;
        }
        self.capacity = Some(rate);
        self.counted = (seen.retransmits, seen.sent);
        let most = rate.scaled(ROOM);
        self.phase = Phase::Climb { from: window, since: Some(now), most: Some(most) };
        self.pace = Some(window.min(most));
        // The last clumps have still to arrive.
        self.deaf_until = now + seen.rtt.get() + seen.min_rtt.get() / NOTICED;
    }

    /// Sends twice as fast each round trip.
    pub(super) fn climb(&mut self, seen: &Observation, pace: Rate, most: Option<Rate>, now: Duration) {
        if now < self.deaf_until {
            self.counted = (seen.retransmits, seen.sent);
        }
        if self.is_congested(seen, now) {
            let little = self.capacity.is_some_and(|capacity| pace < capacity.scaled(DEEPEST_CUT));
            if little && self.others_queue(seen, now) {
                // At so little a queue stands already: others hold the rest, and are about to take this too.
                self.begin_to_share(pace, now);
            } else {
                self.settle(pace, seen, now);
                self.cut(pace, DEEPEST_CUT, seen, now);
            }
            return;
        }
        match most {
            Some(most) if pace >= most && most <= MAX_TRAIN_RATE => self.settle(most, seen, now),
            // What such a path holds is left to the congestion control.
            _ if pace >= most.unwrap_or(MAX_TRAIN_RATE) => (self.phase, self.pace) = (Phase::Off, None),
            _ => self.pace = Some(pace),
        }
    }
}
