//! How much later packets leave because they were read late.

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
    /// When this bottleneck has sent all that was read.
    free: Time,
}

impl ReadLag {
    pub(super) fn new(rate: Rate, one_way: Duration) -> Self {
        Self { rate, one_way, free: Time::START }
    }

    /// Takes `bytes` that arrived after `empty` and arrive at the path's end at `leaves`; returns how much
    /// earlier that may have been.
    pub(super) fn pass(&mut self, empty: Time, bytes: Bytes, leaves: Time) -> Duration {
        self.free = self.free.max(empty) + self.rate.time_for(bytes);
        leaves.since(self.free + self.one_way)
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
        let mut lag = ReadLag::new(Rate::bits_per_sec(8_000_000_000), Duration::from_micros(100));
        let size = Bytes::new(1000);
        assert_eq!(lag.pass(at(10), size, at(111)), Duration::ZERO, "read at once");
        assert_eq!(lag.pass(at(10), size, at(112)), Duration::ZERO, "read late, behind the first");
        assert_eq!(lag.pass(at(10), size, at(121)), Duration::from_micros(8), "read when all were out");
        assert_eq!(lag.pass(at(10), size, at(122)), Duration::from_micros(8), "behind that one");
        assert_eq!(lag.pass(at(50), size, at(151)), Duration::ZERO, "the device was empty since");
    }
}
