//! A ceiling on the rate at which sockets are read, shared by any number of jobs (`--limit`).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::limit::Limiter;
use longhaul_core::units::{Bytes, Rate};

use crate::threads::lock;

/// A limit; clones share it.
#[derive(Debug, Clone)]
pub struct RateLimit {
    start: Instant,
    rate: Rate,
    limiter: Arc<Mutex<Limiter>>,
}

impl RateLimit {
    /// Limits all jobs that are given a clone to `rate` together.
    pub fn new(rate: Rate) -> Self {
        Self { start: Instant::now(), rate, limiter: Arc::new(Mutex::new(Limiter::new(rate))) }
    }

    /// Returns the rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns how much of `spare` to read at once, so that the rate is even.
    pub(crate) fn read_at_most(&self, spare: usize) -> usize {
        const SMALLEST_READ: u64 = 4096;
        let twentieth = (self.rate.as_bytes_per_sec() / 20).max(SMALLEST_READ);
        spare.min(Bytes::new(twentieth).as_usize())
    }

    /// Accounts for `bytes` that were read; returns how long to wait before the next read.
    pub(crate) fn read(&self, bytes: Bytes) -> Duration {
        lock(&self.limiter).read(bytes, self.start.elapsed())
    }
}
