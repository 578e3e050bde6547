//! An upper limit for the rate at which an application reads (`--limit`).

use std::time::Duration;

use crate::units::{Bytes, Rate};

/// Spaces reads so that their mean rate stays at the limit; the closing receive window slows the
/// sender.
#[derive(Debug, Clone)]
pub struct Limiter {
    rate: Rate,
    /// The time at which all bytes read so far would have passed at the limit.
    clear_at: Duration,
}

impl Limiter {
    /// The largest credit earned while idle: enough for the scheduler's delays, too little for a
    /// burst.
    const CREDIT: Duration = Duration::from_millis(20);

    /// Creates a limiter for `rate`.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, clear_at: Duration::ZERO }
    }

    /// Returns the limit.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the limit at `now`. What was read ahead of the former one is waited for, and for no
    /// longer than before: a much lower limit must not stall the next read.
    pub fn set_rate(&mut self, rate: Rate, now: Duration) {
        if rate != self.rate && self.clear_at > now {
            let ahead = self.rate.bytes_in(self.clear_at - now);
            self.clear_at = self.clear_at.min(now.saturating_add(rate.time_for(ahead)));
        }
        self.rate = rate;
    }

    /// Accounts for `bytes` read at `now` (since a fixed moment); returns the time to wait before
    /// the next read.
    pub fn read(&mut self, bytes: Bytes, now: Duration) -> Duration {
        let from = self.clear_at.max(now.saturating_sub(Self::CREDIT));
        self.clear_at = from.saturating_add(self.rate.time_for(bytes));
        self.clear_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_rate_is_the_limit_and_idle_time_permits_no_burst() {
        let mut limiter = Limiter::new(Rate::mbit(8));
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += limiter.read(Bytes::new(100_000), now);
        }
        assert_eq!(now, Duration::from_secs(10));
        let mut limiter = Limiter::new(Rate::mbit(8));
        let wait = limiter.read(Bytes::new(1_000_000), Duration::from_secs(3600));
        assert_eq!(wait, Duration::from_millis(980));
    }

    #[test]
    fn changed_limit_keeps_what_was_read_ahead() {
        let mut limiter = Limiter::new(Rate::mbit(8));
        limiter.read(Bytes::new(1_020_000), Duration::from_secs(1));
        limiter.set_rate(Rate::mbit(80), Duration::from_secs(1));
        let wait = limiter.read(Bytes::new(1_000_000), Duration::from_secs(1));
        assert_eq!(wait, Duration::from_millis(200));
        limiter.set_rate(Rate::mbit(1), Duration::from_secs(1));
        assert_eq!(limiter.read(Bytes::ZERO, Duration::from_secs(1)), Duration::from_millis(200));
    }
}
