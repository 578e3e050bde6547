//! A ceiling on the rate at which sockets are read, shared by any number of jobs (`--limit`).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::limit::Limiter;
use longhaul_core::units::{Bytes, Rate};

use crate::cancel::Cancel;
use crate::threads::lock;

/// A limit that may be changed while jobs run, and may lie within another one; clones share it.
#[derive(Debug, Clone)]
pub struct RateLimit {
    start: Instant,
    /// `None` where the rate has no ceiling.
    limiter: Arc<Mutex<Option<Limiter>>>,
    /// The limit of a larger group of jobs, which counts too.
    outer: Option<Arc<RateLimit>>,
}

impl RateLimit {
    /// Limits all jobs that are given a clone to `rate` together.
    pub fn new(rate: Rate) -> Self {
        Self::adjustable(Some(rate))
    }

    /// Makes a limit that may have no ceiling for now.
    pub fn adjustable(rate: Option<Rate>) -> Self {
        let limiter = Arc::new(Mutex::new(rate.map(Limiter::new)));
        Self { start: Instant::now(), limiter, outer: None }
    }

    /// Makes a limit of its own within this one.
    pub fn within(&self, rate: Option<Rate>) -> Self {
        Self { outer: Some(Arc::new(self.clone())), ..Self::adjustable(rate) }
    }

    /// Changes the ceiling; `None` removes it.
    pub fn set(&self, rate: Option<Rate>) {
        let mut limiter = lock(&self.limiter);
        if limiter.as_ref().map(Limiter::rate) != rate {
            *limiter = rate.map(Limiter::new);
        }
    }

    /// Returns the lowest ceiling that counts now.
    pub(crate) fn rate(&self) -> Option<Rate> {
        let own = lock(&self.limiter).as_ref().map(Limiter::rate);
        let outer = self.outer.as_ref().and_then(|outer| outer.rate());
        own.into_iter().chain(outer).min()
    }

    /// Returns how much of `spare` to read at once, so that the rate is even.
    pub(crate) fn read_at_most(&self, spare: usize) -> usize {
        const SMALLEST_READ: u64 = 4096;
        let twentieth = |rate: Rate| Bytes::new((rate.as_bytes_per_sec() / 20).max(SMALLEST_READ)).as_usize();
        self.rate().map_or(spare, |rate| spare.min(twentieth(rate)))
    }

    /// Accounts for `bytes` that were read; returns how long to wait before the next read.
    pub(crate) fn read(&self, bytes: Bytes) -> Duration {
        let now = self.start.elapsed();
        let own = lock(&self.limiter).as_mut().map_or(Duration::ZERO, |limiter| limiter.read(bytes, now));
        self.outer.as_ref().map_or(own, |outer| own.max(outer.read(bytes)))
    }
}

/// How often a wait is accounted for: within each interval of the diagnosis (100 ms).
const ACCOUNTED: Duration = Duration::from_millis(50);

/// Waits as `--limit` requires, unless `cancel` is set; `account` is called with each part of the wait, so that an interval of the
/// diagnosis does not miss a wait that spans it.
pub(crate) fn wait_for_limit(cancel: &Cancel, wait: Duration, account: impl Fn(Duration)) {
    let mut left = wait;
    while !left.is_zero() {
        let part = left.min(ACCOUNTED);
        let is_cancelled = cancel.sleep(part);
        account(part);
        if is_cancelled {
            return;
        }
        left -= part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_limit_keeps_to_the_outer_one_and_both_may_change() {
        let rate = |n| Some(Rate::bits_per_sec(n));
        let total = RateLimit::adjustable(None);
        let one = total.within(None);
        assert_eq!(
            (one.rate(), one.read_at_most(1 << 20), one.read(Bytes::gib(1))),
            (None, 1 << 20, Duration::ZERO)
        );
        total.set(rate(8_000_000));
        assert_eq!(one.rate(), rate(8_000_000));
        assert!(one.read(Bytes::new(1_000_000)) > Duration::from_millis(900));
        one.set(rate(800_000));
        assert_eq!((one.rate(), total.rate()), (rate(800_000), rate(8_000_000)));
        assert!(one.read(Bytes::new(100_000)) > Duration::from_millis(900));
        total.set(None);
        one.set(None);
        assert_eq!(one.read(Bytes::gib(1)), Duration::ZERO);
    }
}
