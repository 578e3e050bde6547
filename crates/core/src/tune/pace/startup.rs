//! Start-up: reaches the bottleneck's rate without overflowing its queue, from a packet train or from a known rate.

use std::time::Duration;

use super::congestion::{DEEPEST_CUT, QUEUE_RTT_PARTS};
use super::{Observation, Pacer, PacerPhase, initial_pace};
use crate::tune::packet_train::MAX_TRAIN_RATE;
use crate::units::Rate;

/// The first cruising pace over the rate of the packet train: a margin for traffic that the train did not meet.
pub(super) const TRAIN_RATE_SHARE: f64 = 0.85;
/// The share of the first pace that must be delivered to confirm a known rate.
const CONFIRMED: f64 = 0.8;

impl Pacer {
    /// `Trust`: waits until the data sent at the first pace is delivered.
    pub(super) fn trust(&mut self, known: Rate, seen: &Observation, late: bool, now: Duration) {
        let pace = initial_pace(known);
        if self.is_congested(seen, now) {
            self.settle(pace, seen, now);
            // This connection never held the rate: the cut may be as deep as needed.
            self.cut(pace, 0.0, seen, now);
        } else if self.delivery_over_rtt(seen, now).is_some_and(|arrives| arrives >= pace.scaled(CONFIRMED)) {
            self.baseline = (seen.retransmits, seen.sent);
            self.phase = PacerPhase::Climb { from: pace, since: Some(now), most: Some(known) };
        } else if late {
            // A sender that does not use the pace, or cannot, needs none.
            (self.phase, self.pace) = (PacerPhase::Off, None);
        }
    }

    /// `Listen`: waits until a packet train gives the bottleneck's rate.
    pub(super) fn listen(&mut self, seen: &Observation, train_rate: Option<Rate>, late: bool, now: Duration) {
        let window = Rate::over(seen.window, seen.min_rtt.get());
        let Some(rate) = train_rate else {
            let brought = self.recent_delivery(seen, now);
            if late || brought > MAX_TRAIN_RATE {
                self.phase = PacerPhase::Off;
            } else if seen.retransmits > self.baseline.0 {
                // The queue is shorter than a burst: probes find the rate, starting from that of slow start.
                self.settle(brought.max(window.min(brought.scaled(2.0))), seen, now);
            }
            return;
        };
        if rate > MAX_TRAIN_RATE {
            self.phase = PacerPhase::Off;
            return;
        }
        self.capacity = Some(rate);
        self.baseline = (seen.retransmits, seen.sent);
        let most = rate.scaled(TRAIN_RATE_SHARE);
        self.phase = PacerPhase::Climb { from: window, since: Some(now), most: Some(most) };
        self.pace = Some(window.min(most));
        // The last bursts are still in flight.
        self.ignore_until = now + seen.rtt.get() + seen.min_rtt.get() / QUEUE_RTT_PARTS;
    }

    /// `Climb`: doubles the pace each RTT.
    pub(super) fn climb(&mut self, seen: &Observation, pace: Rate, most: Option<Rate>, now: Duration) {
        if now < self.ignore_until {
            self.baseline = (seen.retransmits, seen.sent);
        }
        if self.is_congested(seen, now) {
            let little = self.capacity.is_some_and(|capacity| pace < capacity.scaled(DEEPEST_CUT));
            if little && self.has_competing_queue(seen, now) {
                // A queue stands at a small part of the capacity: competing flows use the rest.
                self.begin_to_share(pace, now);
            } else {
                self.settle(pace, seen, now);
                self.cut(pace, DEEPEST_CUT, seen, now);
            }
            return;
        }
        match most {
            Some(most) if pace >= most && most <= MAX_TRAIN_RATE => self.settle(most, seen, now),
            // A path this fast is left to the congestion control.
            _ if pace >= most.unwrap_or(MAX_TRAIN_RATE) => (self.phase, self.pace) = (PacerPhase::Off, None),
            _ => self.pace = Some(pace),
        }
    }
}
