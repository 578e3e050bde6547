//! How often a running transfer is measured; may be changed while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The interval between two samples; clones share it.
#[derive(Debug, Clone)]
pub struct SampleInterval(Arc<AtomicU64>);

impl SampleInterval {
    /// Makes an interval, of 1 ms at least.
    pub fn new(interval: Duration) -> Self {
        let own = Self(Arc::default());
        own.set(interval);
        own
    }

    /// Changes the interval. It counts from the next sample on.
    pub fn set(&self, interval: Duration) {
        let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        self.0.store(micros.max(1000), Ordering::Relaxed);
    }

    /// Returns the interval.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}
