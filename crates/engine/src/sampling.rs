//! The sampling interval of a running transfer, which may change meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The interval between two samples; clones share it.
#[derive(Debug, Clone)]
pub struct SampleInterval {
    micros: Arc<AtomicU64>,
    is_sparing: bool,
}

impl SampleInterval {
    /// Creates an interval of at least 1 ms.
    pub fn new(interval: Duration) -> Self {
        let own = Self { micros: Arc::default(), is_sparing: false };
        own.set(interval);
        own
    }

    /// Creates an interval that grows if sampling would take more than 1 % of a core.
    pub fn sparing(interval: Duration) -> Self {
        Self { is_sparing: true, ..Self::new(interval) }
    }

    /// Changes the interval, from the next sample on.
    pub fn set(&self, interval: Duration) {
        let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros.max(1000), Ordering::Relaxed);
    }

    /// Returns the interval.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// Returns the time to the next sample, given the CPU time `cost` of one.
    pub(crate) fn after(&self, cost: Duration) -> Duration {
        /// 1 % of a core: 100 times the cost of taking a sample, and 25 % more for writing it.
        const SHARE: u32 = 125;
        const MAX_INTERVAL: Duration = Duration::from_secs(1);
        if self.is_sparing { self.get().max((cost * SHARE).min(MAX_INTERVAL)) } else { self.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparing_interval_grows_with_the_cost_of_a_sample() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let sparing = SampleInterval::sparing(ms(10));
        let costs = [0, 79, 160, 1_000_000];
        assert_eq!(costs.map(|cost| sparing.after(us(cost))), [ms(10), ms(10), ms(20), ms(1000)]);
        sparing.set(ms(200));
        assert_eq!(sparing.after(us(160)), ms(200));
        assert_eq!(SampleInterval::new(ms(10)).after(us(160)), ms(10));
    }
}
