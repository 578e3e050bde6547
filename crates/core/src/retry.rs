//! Whether a retry can help, and the delays between retries.

use std::time::Duration;

use crate::units::Bytes;

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// A retry cannot help.
    Never,
    /// Retry after a backoff.
    Backoff,
    /// Retry after at least this time, requested by the server.
    After(Duration),
    /// Retry at once; does not count as a failure.
    AtOnce,
}

impl Retry {
    /// Returns whether `backoff` has an attempt left for it.
    pub fn is_permitted(self, backoff: &Backoff) -> bool {
        match self {
            Self::Never => false,
            Self::Backoff => backoff.permits(None),
            Self::After(wait) => backoff.permits(Some(wait)),
            Self::AtOnce => true,
        }
    }

    /// Returns no retry where `is_final`.
    #[must_use]
    pub fn unless(self, is_final: bool) -> Self {
        if is_final { Self::Never } else { self }
    }
}

/// Counts the consecutive failures of a stream, and computes the delay before each retry.
#[derive(Debug, Clone)]
pub struct Backoff {
    most: u32,
    failures: u32,
}

impl Backoff {
    /// The bytes that a connection must receive to reset the count of failures; a few bytes do not,
    /// so that a server that closes after every few bytes is not retried forever.
    pub const PROGRESS: Bytes = Bytes::kib(64);

    const FIRST: Duration = Duration::from_millis(250);
    const MAX_WAIT: Duration = Duration::from_secs(30);
    const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

    /// Allows `most` consecutive failures.
    pub const fn new(most: u32) -> Self {
        Self { most, failures: 0 }
    }

    /// Accounts for the bytes that a connection received before its failure.
    pub fn received(&mut self, bytes: Bytes) {
        if bytes >= Self::PROGRESS {
            self.failures = 0;
        }
    }

    /// Returns whether another failure is permitted.
    pub fn permits(&self, retry_after: Option<Duration>) -> bool {
        self.failures < self.most && retry_after.is_none_or(|wait| wait <= Self::MAX_RETRY_AFTER)
    }

    /// Accounts for a failure; returns the delay before the retry, or `None` after the last allowed
    /// failure.
    ///
    /// Delays double from 250 ms to 30 s. `jitter` in `0.0..1.0` spreads each over half to all of
    /// its length, so that many clients do not retry at the same time. A longer Retry-After of the
    /// server is obeyed; if it exceeds ten minutes, the stream ends, because the user or a script
    /// can retry later.
    pub fn failed(&mut self, retry_after: Option<Duration>, jitter: f64) -> Option<Duration> {
        if !self.permits(retry_after) {
            return None;
        }
        let full = Self::FIRST.saturating_mul(1 << self.failures.min(16)).min(Self::MAX_WAIT);
        self.failures += 1;
        let wait = full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        Some(retry_after.map_or(wait, |server| server.max(wait)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_the_last_failure_or_retry_after() {
        let mut backoff = Backoff::new(3);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.failed(None, 1.0)).map(|w| w.as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000]);
        // Retry-After lengthens them.
        let minutes = Duration::from_secs(600);
        assert_eq!(Backoff::new(1).failed(Some(minutes), 0.5), Some(minutes));
        assert_eq!(Backoff::new(1).failed(Some(minutes * 2), 0.5), None);
    }

    #[test]
    fn only_substantial_progress_resets_the_count() {
        let mut backoff = Backoff::new(1);
        assert!(backoff.failed(None, 0.0).is_some());
        backoff.received(Bytes::new(30));
        assert_eq!(backoff.failed(None, 0.0), None);
        backoff.received(Backoff::PROGRESS);
        assert!(backoff.failed(None, 0.0).is_some());
    }
}
