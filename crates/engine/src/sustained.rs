//! The highest rate that was held for a while.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

/// A rate is taken over at least this long; less would be that of a burst.
const OVER: Duration = Duration::from_secs(1);

/// Follows a count of bytes, and keeps the highest rate.
#[derive(Debug, Default)]
pub(crate) struct SustainedRate {
    since: Duration,
    before: Bytes,
    best: Rate,
}

impl SustainedRate {
    /// Accounts for `bytes` so far at `now`; the last call may close a shorter span where there was no whole one.
    pub(crate) fn observe(&mut self, bytes: Bytes, now: Duration, last: bool) {
        let span = now.saturating_sub(self.since);
        if span >= OVER || (last && self.best == Rate::default()) {
            self.best = self.best.max(Rate::over(bytes - self.before, span));
            (self.since, self.before) = (now, bytes);
        }
    }

    /// Returns the highest so far.
    pub(crate) fn best(&self) -> Rate {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_no_rate_and_a_short_transfer_has_one() {
        let mut rate = SustainedRate::default();
        rate.observe(Bytes::mib(100), Duration::from_millis(100), false);
        assert_eq!(rate.best(), Rate::default());
        rate.observe(Bytes::mib(100), Duration::from_secs(1), false);
        rate.observe(Bytes::mib(110), Duration::from_secs(2), true);
        assert_eq!(rate.best(), Rate::bytes_per_sec(100 << 20));
        let mut short = SustainedRate::default();
        short.observe(Bytes::mib(1), Duration::from_millis(500), true);
        assert_eq!(short.best(), Rate::bytes_per_sec(2 << 20));
    }
}
