//! The highest rate that a transfer sustained for a second.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

/// The span over which a rate is measured; a shorter one would measure a burst.
const SPAN: Duration = Duration::from_secs(1);

/// Derives the highest rate from a byte counter.
#[derive(Debug, Default)]
pub(crate) struct SustainedRate {
    since: Duration,
    before: Bytes,
    best: Rate,
}

impl SustainedRate {
    /// Observes the byte count at `now`; the last call may close a shorter span if no whole one has
    /// passed.
    pub(crate) fn observe(&mut self, bytes: Bytes, now: Duration, last: bool) {
        let span = now.saturating_sub(self.since);
        if span >= SPAN || (last && self.best == Rate::default()) {
            self.best = self.best.max(Rate::over(bytes - self.before, span));
            (self.since, self.before) = (now, bytes);
        }
    }

    /// Returns the highest rate so far.
    pub(crate) fn best(&self) -> Rate {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_shorter_than_the_span_counts_only_at_the_end_of_a_short_transfer() {
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
