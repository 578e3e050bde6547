//! The time and byte budget of a probe.

use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};

/// A probe without sweeps ends within this time.
const TIME: Duration = Duration::from_secs(10);
/// Time reserved at the end for outstanding answers.
const RESERVE: Duration = Duration::from_millis(700);
/// A probe without sweeps sends less than this share of what the path carries in [`TIME`].
const SHARE: f64 = 0.1;
/// The share available to the plan; the rest covers headers, acknowledgements and overestimates.
const MARGIN: f64 = 0.9;

/// The remaining budget of a probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    started: Instant,
    time: Duration,
    /// The path's rate, from which the byte budget is computed.
    rate: Option<Rate>,
    /// Bytes used so far.
    pub(super) used: Bytes,
    share: f64,
}

impl Budget {
    pub(super) fn new(started: Instant, full: bool) -> Self {
        /// With sweeps, which the user requests by `--full`, time and bytes are this many times
        /// larger.
        const FULL: u32 = 12;
        let (time, share) = if full { (TIME * FULL, SHARE * f64::from(FULL)) } else { (TIME, SHARE) };
        Self { started, time, rate: None, used: Bytes::ZERO, share }
    }

    /// Returns the remaining time.
    pub(super) fn time_left(&self) -> Duration {
        self.time.saturating_sub(RESERVE).saturating_sub(self.started.elapsed())
    }

    /// Sets the path's rate, from which the byte budget is computed.
    pub(super) fn set_rate(&mut self, rate: Rate) {
        tracing::debug!("probe: bytes are reckoned by {rate}, {} so far", self.used);
        self.rate = Some(rate);
    }

    /// Returns how long a measurement with this share of the budget may fill the path.
    pub(super) fn filling_time(&self, share: f64) -> Duration {
        self.time.min(TIME).mul_f64(MARGIN * self.share * share)
    }

    /// Returns the remaining bytes; `None` before the rate is known.
    pub(super) fn bytes_left(&self) -> Option<Bytes> {
        let all = self.rate?.bytes_in(self.time.min(TIME).mul_f64(MARGIN)).get() as f64 * self.share;
        Some(Bytes::new(all as u64).saturating_sub(self.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_budget_is_a_tenth_of_path_capacity() {
        let mut budget = Budget::new(Instant::now(), false);
        assert_eq!(budget.bytes_left(), None);
        budget.set_rate(Rate::bits_per_sec(100_000_000));
        assert_eq!(budget.bytes_left(), Some(Bytes::new(11_250_000)));
        budget.used += Bytes::new(20_000_000);
        assert_eq!(budget.bytes_left(), Some(Bytes::ZERO));
        assert!(budget.time_left() <= TIME);
    }
}
