//! Measures the delay that late reads add to packets.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use crate::model::Time;

/// Follows a second bottleneck, which gets each packet as early as it can have come.
///
/// A late read does no harm while packets wait for the bottleneck anyway; where it stood idle, all that
/// comes after leaves later, until the device was empty again.
#[derive(Debug)]
pub(super) struct ReadLag {
    rate: Rate,
    one_way: Duration,
    is_alone: bool,
    /// When this bottleneck has sent all that was read.
    free: Time,
}

impl ReadLag {
    /// `is_alone` says that nothing but what is read holds packets up.
    pub(super) fn new(rate: Rate, one_way: Duration, is_alone: bool) -> Self {
        Self { rate, one_way, is_alone, free: Time::START }
    }

    /// Takes `bytes` that arrived after `empty`, were read at `now` and arrive at the path's end at `leaves`; returns how
    /// much earlier that may have been.
    ///
    /// Where others share the path, this bottleneck, which does not see them, would take their time for lateness. There
    /// it is what the bytes themselves have waited for the reader.
    pub(super) fn pass(&mut self, empty: Time, now: Time, bytes: Bytes, leaves: Time) -> Duration {
        self.free = self.free.max(empty) + self.rate.time_for(bytes);
        let lag = leaves.since(self.free + self.one_way);
        if self.is_alone { lag } else { lag.min(now.since(empty)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    #[test]
    fn counts_idling_of_the_bottleneck_and_nothing_else() {
        // 1000 bytes take a microsecond; the path 100 more.
        let mut lag = ReadLag::new(Rate::bits_per_sec(8_000_000_000), Duration::from_micros(100), true);
        let mut pass = |empty, leaves| lag.pass(at(empty), at(leaves - 101), Bytes::new(1000), at(leaves));
        assert_eq!(pass(10, 111), Duration::ZERO, "read at once");
        assert_eq!(pass(10, 112), Duration::ZERO, "read late, behind the first");
        assert_eq!(pass(10, 121), Duration::from_micros(8), "read when all were out");
        assert_eq!(pass(10, 122), Duration::from_micros(8), "behind that one");
        assert_eq!(pass(50, 151), Duration::ZERO, "the device was empty since");
    }

    #[test]
    fn others_on_the_path_are_no_lateness() {
        let mut lag = ReadLag::new(Rate::bits_per_sec(8_000_000_000), Duration::from_micros(100), false);
        let mut pass = |empty, now, leaves| lag.pass(at(empty), at(now), Bytes::new(1000), at(leaves));
        assert_eq!(pass(10, 10, 141), Duration::ZERO, "behind 30 others");
        assert_eq!(pass(10, 15, 142), Duration::from_micros(5), "read late, and behind others");
    }
}
