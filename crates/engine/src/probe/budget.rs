//! How long a probe takes, and how much it sends.

use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};

/// A probe without sweeps ends within this time.
const TIME: Duration = Duration::from_secs(10);
/// What is left at the end for the answers that are under way.
const RESERVE: Duration = Duration::from_millis(700);
/// A probe without sweeps sends less than this share of what the path carries in [`TIME`].
const SHARE: f64 = 0.1;
/// What is not spent by plan: headers, acknowledgements, estimates that are too high.
const MARGIN: f64 = 0.9;

/// What a probe may still use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    started: Instant,
    time: Duration,
    /// The rate that the bytes are reckoned by.
    rate: Option<Rate>,
    /// Bytes so far.
    pub(super) used: Bytes,
    share: f64,
}

impl Budget {
    pub(super) fn new(started: Instant, full: bool) -> Self {
        /// With sweeps: they are asked for, and take what they take.
        const FULL: u32 = 12;
        let (time, share) = if full { (TIME * FULL, SHARE * f64::from(FULL)) } else { (TIME, SHARE) };
        Self { started, time, rate: None, used: Bytes::ZERO, share }
    }

    /// Returns how much time is left.
    pub(super) fn time_left(&self) -> Duration {
        self.time.saturating_sub(RESERVE).saturating_sub(self.started.elapsed())
    }

    /// Reckons bytes by the path's rate from now on.
    pub(super) fn set_rate(&mut self, rate: Rate) {
        tracing::debug!("probe: bytes are reckoned by {rate}, {} so far", self.used);
        self.rate = Some(rate);
    }

    /// Returns for how long a path may be filled by a measurement that may use this share of the budget.
    pub(super) fn filling_time(&self, share: f64) -> Duration {
        self.time.min(TIME).mul_f64(MARGIN * self.share * share)
    }

    /// Counts bytes.
    pub(super) fn spend(&mut self, bytes: Bytes) {
        self.used += bytes;
    }

    /// Returns how many bytes are left; `None` before the rate is known.
    pub(super) fn bytes_left(&self) -> Option<Bytes> {
        let all = self.rate?.bytes_in(self.time.min(TIME).mul_f64(MARGIN)).get() as f64 * self.share;
        Some(Bytes::new(all as u64).saturating_sub(self.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_tenth_of_what_the_path_carries() {
        let mut budget = Budget::new(Instant::now(), false);
        assert_eq!(budget.bytes_left(), None);
        budget.set_rate(Rate::bits_per_sec(100_000_000));
        assert_eq!(budget.bytes_left(), Some(Bytes::new(11_250_000)));
        budget.spend(Bytes::new(20_000_000));
        assert_eq!(budget.bytes_left(), Some(Bytes::ZERO));
        assert!(budget.time_left() <= TIME);
    }
}
