//! What a path has left for payload while others share it.

use std::time::Duration;

use longhaul_core::units::Rate;

/// A rate that changes in steps.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    /// From when on, in seconds since the transfer began, and bytes a second; in order.
    steps: Vec<(f64, f64)>,
}

impl Left {
    /// Begins with `rate`.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { steps: vec![(f64::NEG_INFINITY, rate.as_bytes_per_sec() as f64)] }
    }

    /// Adds that it is `rate` from `from` on, which comes after every step before.
    pub(crate) fn then(mut self, from: Duration, rate: Rate) -> Self {
        self.steps.push((from.as_secs_f64(), rate.as_bytes_per_sec() as f64));
        self
    }

    /// Returns the bytes that pass between two moments, in seconds since the transfer began.
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
    fn counts_each_step_for_its_time() {
        let left = Left::new(Rate::bytes_per_sec(100))
            .then(Duration::from_secs(2), Rate::bytes_per_sec(50))
            .then(Duration::from_secs(4), Rate::bytes_per_sec(10));
        for (from, to, bytes) in [(0.0, 1.0, 100.0), (1.0, 3.0, 150.0), (1.5, 5.0, 160.0), (7.0, 7.0, 0.0)] {
            assert_eq!(left.bytes(from, to), bytes, "{from} to {to}");
        }
    }
}
