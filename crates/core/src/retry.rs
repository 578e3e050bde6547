//! When to try again.

use std::time::Duration;

use crate::units::Bytes;

/// Counts the failures of a stream since it last made progress, and spaces the next tries.
#[derive(Debug, Clone)]
pub struct Backoff {
    most: u32,
    failures: u32,
}

impl Backoff {
    /// What a connection must bring before its failure counts as the first again; a server that
    /// closes after every few bytes must not be asked for ever.
    pub const PROGRESS: Bytes = Bytes::kib(64);

    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(30);
    const LONGEST_ASKED: Duration = Duration::from_secs(600);

    /// Allows `most` failures in a row.
    pub const fn new(most: u32) -> Self {
        Self { most, failures: 0 }
    }

    /// Accounts for what a connection brought before it failed.
    pub fn received(&mut self, bytes: Bytes) {
        if bytes >= Self::PROGRESS {
            self.failures = 0;
        }
    }

    /// Accounts for a failure; returns how long to wait, or `None` where it was the last allowed.
    ///
    /// Waits double from 250 ms to 30 s; `jitter` in `0.0..1.0` spreads them over half to all of that, so
    /// that many clients do not come back at once. A server's Retry-After is obeyed where it is longer;
    /// where it is longer than ten minutes, nobody waits: a person or a script may come back then.
    pub fn failed(&mut self, retry_after: Option<Duration>, jitter: f64) -> Option<Duration> {
        if self.failures >= self.most || retry_after.is_some_and(|wait| wait > Self::LONGEST_ASKED) {
            return None;
        }
        let full = Self::FIRST.saturating_mul(1 << self.failures.min(16)).min(Self::LONGEST);
        self.failures += 1;
        let wait = full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        Some(retry_after.map_or(wait, |server| server.max(wait)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end() {
        let mut backoff = Backoff::new(3);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.failed(None, 1.0)).map(|w| w.as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000]);
    }

    #[test]
    fn progress_forgives_and_a_trickle_does_not() {
        let mut backoff = Backoff::new(1);
        assert!(backoff.failed(None, 0.0).is_some());
        backoff.received(Bytes::new(30));
        assert_eq!(backoff.failed(None, 0.0), None);
        backoff.received(Backoff::PROGRESS);
        assert!(backoff.failed(None, 0.0).is_some());
    }

    #[test]
    fn the_server_may_ask_for_longer() {
        let minutes = Duration::from_secs(600);
        assert_eq!(Backoff::new(1).failed(Some(minutes), 0.5), Some(minutes));
        assert_eq!(Backoff::new(1).failed(Some(minutes * 2), 0.5), None);
    }
}
