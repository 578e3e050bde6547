//! A ceiling on the rate at which sockets are read, shared by any number of jobs (`--limit`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::limit::Limiter;
use longhaul_core::pace::Pace;
use longhaul_core::units::{Bytes, Rate};
use parking_lot::Mutex;

use crate::cancel::Cancel;

/// A limit that may be changed while jobs run and may be nested in another limit; clones share it.
#[derive(Debug, Clone)]
pub struct RateLimit {
    start: Instant,
    /// `None` where the rate has no ceiling.
    limiter: Arc<Mutex<Option<Limiter>>>,
    /// The limit of a larger group of jobs, which also applies.
    outer: Option<Arc<RateLimit>>,
    /// Whether the rate is a share of a limit of many hosts.
    is_share: bool,
}

impl RateLimit {
    /// Limits the sum of all jobs that hold a clone to `rate`.
    pub fn new(rate: Rate) -> Self {
        Self::adjustable(Some(rate))
    }

    /// Creates a limit that may have no ceiling at first.
    pub fn adjustable(rate: Option<Rate>) -> Self {
        let limiter = Arc::new(Mutex::new(rate.map(Limiter::new)));
        Self { start: Instant::now(), limiter, outer: None, is_share: false }
    }

    /// Creates a limit that is nested in this one.
    pub fn within(&self, rate: Option<Rate>) -> Self {
        Self { outer: Some(Arc::new(self.clone())), ..Self::adjustable(rate) }
    }

    /// Creates a limit that is a share of one of many hosts, within that of this host's user.
    pub fn share_of_farm(user: Option<&Self>, rate: Option<Rate>) -> Self {
        Self { is_share: true, ..user.map_or_else(|| Self::adjustable(rate), |user| user.within(rate)) }
    }

    /// Returns whether the lowest ceiling that applies now is a share of one of many hosts.
    pub fn is_farms(&self) -> bool {
        let own = self.limiter.lock().as_ref().map(Limiter::rate);
        let outer = self.outer.as_ref().and_then(|outer| outer.rate());
        match (own, outer) {
            (Some(own), outer) if outer.is_none_or(|outer| own <= outer) => self.is_share,
            _ => self.outer.as_ref().is_some_and(|outer| outer.is_farms()),
        }
    }

    /// Changes the ceiling; `None` removes it.
    pub fn set(&self, rate: Option<Rate>) {
        let now = self.start.elapsed();
        match (&mut *self.limiter.lock(), rate) {
            (Some(limiter), Some(rate)) => limiter.set_rate(rate, now),
            (limiter, rate) => *limiter = rate.map(Limiter::new),
        }
    }

    /// Returns the lowest ceiling that applies now.
    pub(crate) fn rate(&self) -> Option<Rate> {
        let own = self.limiter.lock().as_ref().map(Limiter::rate);
        let outer = self.outer.as_ref().and_then(|outer| outer.rate());
        own.into_iter().chain(outer).min()
    }

    /// Returns how many bytes of `spare` to read at once for an even rate.
    pub(crate) fn read_at_most(&self, spare: usize) -> usize {
        const SMALLEST_READ: u64 = 4096;
        let twentieth = |rate: Rate| Bytes::new((rate.as_bytes_per_sec() / 20).max(SMALLEST_READ)).as_usize();
        self.rate().map_or(spare, |rate| spare.min(twentieth(rate)))
    }

    /// Counts `bytes` as read; returns the wait before the next read.
    pub(crate) fn read(&self, bytes: Bytes) -> Duration {
        let now = self.start.elapsed();
        let own = self.limiter.lock().as_mut().map_or(Duration::ZERO, |limiter| limiter.read(bytes, now));
        self.outer.as_ref().map_or(own, |outer| own.max(outer.read(bytes)))
    }
}

/// Returns whether `--pace` sets the ceiling.
pub(crate) fn is_of_pace(limit: Option<&RateLimit>, pace: Pace) -> bool {
    matches!(pace, Pace::Rate(rate) if limit.and_then(RateLimit::rate) == Some(rate))
}

/// The interval at which a wait is reported: shorter than an interval of the diagnosis (100 ms).
const ACCOUNTED: Duration = Duration::from_millis(50);

/// Waits as `--limit` requires, unless `cancel` is set. Calls `account` with each part of the wait,
/// so that a long wait is counted in every interval of the diagnosis.
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
    fn outer_limit_bounds_inner_one_and_both_may_change() {
        let rate = |n| Some(Rate::bits_per_sec(n));
        let total = RateLimit::adjustable(None);
        let one = total.within(None);
        let unlimited = (one.rate(), one.read_at_most(1 << 20), one.read(Bytes::gib(1)));
        assert_eq!(unlimited, (None, 1 << 20, Duration::ZERO));
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

    #[test]
    fn share_of_a_farm_is_told_from_a_lower_limit_of_the_user() {
        let rate = |n| Some(Rate::bits_per_sec(n));
        for (user, share, is_farms) in
            [(None, None, false), (None, rate(9), true), (rate(10), rate(9), true), (rate(8), rate(9), false)]
        {
            let user = user.map(RateLimit::new);
            let limit = RateLimit::share_of_farm(user.as_ref(), share);
            assert_eq!(limit.is_farms(), is_farms, "{limit:?}");
        }
    }
}
