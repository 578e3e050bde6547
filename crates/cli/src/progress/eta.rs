//! Estimates a transfer's remaining time for display: a smoothed rate, and an end that moves only
//! by significant amounts.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

/// Half-life of the shown rate, in seconds.
const RATE_HALF_LIFE: f64 = 1.0;
/// Half-life of the rate for the estimated end, in seconds.
const END_HALF_LIFE: f64 = 5.0;
/// The end moves if it is off by more than this share of the remaining time,
const MOVES_BY: f64 = 0.15;
/// and by more than this duration.
const MOVES_BY_AT_LEAST: Duration = Duration::from_secs(2);
/// Longer estimates are not shown.
const LONGEST: Duration = Duration::from_secs(360_000);

/// Rate and estimated end of one transfer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EtaEstimate {
    at: Duration,
    received: Bytes,
    rate: f64,
    slow_rate: f64,
    /// Estimated end, since the transfer's start.
    end: Option<Duration>,
}

impl EtaEstimate {
    /// Adds the sample that `received` had arrived at `at`; `left` is missing, if known.
    pub(super) fn follow(&mut self, at: Duration, received: Bytes, left: Option<Bytes>) {
        let time = at.saturating_sub(self.at);
        if time > Duration::ZERO {
            let latest = Rate::over(received - self.received, time).as_bits_per_sec() as f64;
            let is_first = self.at.is_zero();
            let follow = |rate: f64, half_life: f64| {
                let keep = if is_first { 0.0 } else { 0.5f64.powf(time.as_secs_f64() / half_life) };
                keep * rate + (1.0 - keep) * latest
            };
            (self.rate, self.slow_rate) =
                (follow(self.rate, RATE_HALF_LIFE), follow(self.slow_rate, END_HALF_LIFE));
            (self.at, self.received) = (at, received);
        }
        let found = left.map(|left| Rate::bits_per_sec(self.slow_rate as u64).time_for(left));
        let found = found.filter(|left| *left < LONGEST);
        self.end = match (found, self.end) {
            (Some(left), Some(end)) => {
                let off = (at + left).abs_diff(end);
                let moves = off > MOVES_BY_AT_LEAST.max(left.mul_f64(MOVES_BY)) || end < at;
                Some(if moves { at + left } else { end })
            }
            (found, _) => found.map(|left| at + left),
        };
    }

    /// Returns the rate of the last seconds.
    pub(super) fn rate(&self) -> Rate {
        Rate::bits_per_sec(self.rate as u64)
    }

    /// Returns the remaining time; `None` if unknown.
    pub(super) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_sub(self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_counts_down_under_a_rate_that_swings() {
        let (mut pace, mut received, mut shown) = (EtaEstimate::default(), 0u64, Vec::new());
        for tick in 1..=1000u64 {
            // The rate alternates between 0.5 and 1.5 times 10 MB/s every second.
            received += if tick / 10 % 2 == 0 { 500_000 } else { 1_500_000 };
            let left = Bytes::new(2_000_000_000) - Bytes::new(received);
            pace.follow(Duration::from_millis(100 * tick), Bytes::new(received), Some(left));
            if tick > 100 {
                shown.push(pace.left().unwrap().as_secs_f64());
            }
        }
        let jumps = shown.windows(2).filter(|pair| (pair[0] - pair[1] - 0.1).abs() > 0.05).count();
        assert!(jumps <= 2, "{jumps} jumps");
        let (last, truth) = (shown.last().unwrap(), 100.0);
        assert!((last - truth).abs() < 0.2 * truth, "{last}");
    }

    #[test]
    fn shown_rate_and_time_left_follow_the_transfer() {
        let (mut pace, mut received) = (EtaEstimate::default(), 0u64);
        for second in 1..=60u64 {
            received += if second <= 20 { 10_000_000 } else { 1_000_000 };
            let left = Bytes::new(1_000_000_000) - Bytes::new(received);
            pace.follow(Duration::from_secs(second), Bytes::new(received), Some(left));
        }
        let left = pace.left().unwrap().as_secs_f64();
        assert!((620.0..=780.0).contains(&left), "{left}");
        let mut pace = EtaEstimate::default();
        for second in 1..20 {
            pace.follow(Duration::from_secs(second), Bytes::mib(10) * second, None);
        }
        assert!((pace.rate / 8.0 / 1_048_576.0 - 10.0).abs() < 0.1);
        assert_eq!(pace.left(), None);
    }
}
