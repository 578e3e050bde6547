//! Measures the delay that late reads of the device add to packets.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use crate::model::Time;

/// Simulates a reference bottleneck that receives each packet at its earliest possible arrival.
///
/// A late read is harmless while packets queue for the bottleneck anyway. If the bottleneck was
/// idle, the late read delays all packets until the device is empty again.
#[derive(Debug)]
pub(super) struct ReadLag {
    rate: Rate,
    one_way: Duration,
    is_alone: bool,
    /// When the reference bottleneck has sent all packets read so far.
    free: Time,
}

impl ReadLag {
    /// `is_alone`: no other traffic shares the bottleneck.
    pub(super) fn new(rate: Rate, one_way: Duration, is_alone: bool) -> Self {
        Self { rate, one_way, is_alone, free: Time::START }
    }

    /// Adds `bytes` that arrived after `empty`, were read at `now` and reach the end of the path at
    /// `leaves`; returns the delay that late reading may have added.
    ///
    /// The reference bottleneck does not simulate other traffic, which would count as lateness.
    /// With other traffic the result is limited to the time that the bytes waited for the reader.
    pub(super) fn pass(&mut self, empty: Time, now: Time, bytes: Bytes, leaves: Time) -> Duration {
        self.free = self.free.max(empty) + self.rate.time_for(bytes);
        let lag = leaves.since(self.free + self.one_way);
        if self.is_alone { lag } else { lag.min(now.since(empty)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::micros as at;

    #[test]
    fn read_lag_counts_only_idle_time_of_the_bottleneck() {
        // 1000 bytes take 1 us; the path adds 100 us.
        let mut lag = ReadLag::new(Rate::bits_per_sec(8_000_000_000), Duration::from_micros(100), true);
        let mut pass = |empty, leaves| lag.pass(at(empty), at(leaves - 101), Bytes::new(1000), at(leaves));
        assert_eq!(pass(10, 111), Duration::ZERO, "read at once");
        assert_eq!(pass(10, 112), Duration::ZERO, "read late, behind the first");
        assert_eq!(pass(10, 121), Duration::from_micros(8), "read when all were out");
        assert_eq!(pass(10, 122), Duration::from_micros(8), "behind that one");
        assert_eq!(pass(50, 151), Duration::ZERO, "the device was empty since");
    }

    #[test]
    fn other_traffic_is_not_counted_as_lateness() {
        let mut lag = ReadLag::new(Rate::bits_per_sec(8_000_000_000), Duration::from_micros(100), false);
        let mut pass = |empty, now, leaves| lag.pass(at(empty), at(now), Bytes::new(1000), at(leaves));
        assert_eq!(pass(10, 10, 141), Duration::ZERO, "behind 30 others");
        assert_eq!(pass(10, 15, 142), Duration::from_micros(5), "read late, and behind others");
    }
}
