//! Whether TCP is still in slow start: each round trip delivers nearly twice the one before.

use std::time::Duration;

use super::LONG_RTT;
use super::interval::Interval;
use super::params;
use crate::units::Rate;

/// The growth of the rate until it ends.
#[derive(Debug, Clone, Default)]
pub(super) struct SlowStart {
    /// The highest rate of an interval.
    highest: Rate,
    /// Intervals in a row without growth.
    flat_intervals: u32,
    /// Whether it is over, or the sender does not send more.
    pub(super) has_ended: bool,
}

impl SlowStart {
    /// Records the rate of an interval, after it has been compared to the earlier ones.
    pub(super) fn record_rate(&mut self, rate: Rate) {
        self.highest = self.highest.max(rate);
    }

    /// Returns whether the rate grows in an interval as the window does, and ends slow start where
    /// it does not any more, or where packets were lost.
    pub(super) fn is_growing(&mut self, interval: &Interval, first_byte: Duration) -> bool {
        if self.has_ended {
            return false;
        }
        let rtt = interval.base_rtt();
        let early = interval.end.saturating_sub(first_byte) <= rtt * params::RAMP_UP_ROUND_TRIPS;
        if interval.lost() > 0 || !(early || rtt >= LONG_RTT) {
            self.has_ended = true;
            return false;
        }
        let grows = interval.rate() > self.highest.scaled(params::SLOW_START_GROWTH);
        self.flat_intervals = if grows { 0 } else { self.flat_intervals + 1 };
        // One interval without growth may be the jitter of the readings.
        self.has_ended = self.flat_intervals >= 2;
        grows
    }
}
