//! The capacity of a path that is left for payload beside cross traffic.

use std::time::Duration;

use longhaul_core::units::Rate;

/// A rate that changes in steps: the path's capacity for payload.
#[derive(Debug, Clone)]
pub(crate) struct PayloadCapacity {
    /// Start of each step in seconds since the start of the transfer, and its rate in bytes per second; in order.
    steps: Vec<(f64, f64)>,
}

impl PayloadCapacity {
    /// Starts with `rate`.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { steps: vec![(f64::NEG_INFINITY, rate.as_bytes_per_sec() as f64)] }
    }

    /// Adds a step to `rate` at `from`, which is after all previous steps.
    pub(crate) fn then(mut self, from: Duration, rate: Rate) -> Self {
        self.steps.push((from.as_secs_f64(), rate.as_bytes_per_sec() as f64));
        self
    }

    /// Returns the bytes that the path can carry between two times, in seconds since the start of the transfer.
    pub(crate) fn bytes(&self, from: f64, to: f64) -> f64 {
        let ends = self.steps.iter().skip(1).map(|(from, _)| *from).chain([f64::INFINITY]);
        let within =
            |((begin, rate), end): (&(f64, f64), f64)| (to.min(end) - from.max(*begin)).max(0.0) * rate;
        self.steps.iter().zip(ends).map(within).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_counts_for_its_duration() {
        let capacity = PayloadCapacity::new(Rate::bytes_per_sec(100))
            .then(Duration::from_secs(2), Rate::bytes_per_sec(50))
            .then(Duration::from_secs(4), Rate::bytes_per_sec(10));
        for (from, to, bytes) in [(0.0, 1.0, 100.0), (1.0, 3.0, 150.0), (1.5, 5.0, 160.0), (7.0, 7.0, 0.0)] {
            assert_eq!(capacity.bytes(from, to), bytes, "{from} to {to}");
        }
    }
}
