//! Histogram of packet lateness; one thread writes, others read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per doubling: a quantile is exact to 2^(1/8), 9 %.
const BUCKETS_PER_OCTAVE: f64 = 8.0;
/// The last bucket starts at 2^30 ns, about one second.
const BUCKETS: usize = 30 * BUCKETS_PER_OCTAVE as usize + 1;

/// Counts durations in geometric buckets.
#[derive(Debug)]
pub(super) struct LatenessHistogram {
    buckets: [AtomicU64; BUCKETS],
    max_nanos: AtomicU64,
}

impl Default for LatenessHistogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), max_nanos: AtomicU64::new(0) }
    }
}

impl LatenessHistogram {
    pub(super) fn record(&self, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        let bucket = ((nanos.max(1) as f64).log2() * BUCKETS_PER_OCTAVE) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.max_nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    pub(super) fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos.load(Ordering::Relaxed))
    }

    /// Returns the quantile `share` (0 to 1) of the recorded durations; zero if there are none.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let counts: Vec<u64> = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                let upper = ((bucket + 1) as f64 / BUCKETS_PER_OCTAVE).exp2();
                return Duration::from_nanos(upper as u64).min(self.max());
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let lateness = LatenessHistogram::default();
        assert_eq!(lateness.quantile(0.99), Duration::ZERO);
        for micros in 1..=1000 {
            lateness.record(Duration::from_micros(micros));
        }
        let p99 = lateness.quantile(0.99).as_secs_f64() * 1e6;
        assert!((990.0..1090.0).contains(&p99), "{p99}");
        assert_eq!(lateness.max(), Duration::from_micros(1000));
        lateness.record(Duration::from_secs(3600));
        assert_eq!(lateness.quantile(1.0), Duration::from_secs(3600).min(lateness.quantile(1.0)));
    }
}
