//! The limit of streams: the tuner's own, lowered by a cap that may change, and for a time after
//! the server has refused connections.

use std::time::Duration;

/// The time for which the first refusal lowers the limit; each further refusal doubles it.
const FIRST_REFUSAL: Duration = Duration::from_secs(60);
/// The longest time for which a refusal lowers the limit, unless the server requests more.
const LONGEST_REFUSAL: Duration = Duration::from_secs(600);

/// A limit of the number of streams, lower for a time after each refusal.
#[derive(Debug, Clone)]
pub struct StreamLimit {
    most: usize,
    cap: usize,
    last_refusal: Option<ServerRefusal>,
}

#[derive(Debug, Clone, Copy)]
struct ServerRefusal {
    open: usize,
    until: Duration,
    lasts: Duration,
}

impl StreamLimit {
    /// Allows `most` streams until the server refuses one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), cap: usize::MAX, last_refusal: None }
    }

    /// Sets the cap; one above the limit changes nothing.
    pub fn set_cap(&mut self, cap: usize) {
        self.cap = cap.max(1);
    }

    /// Returns whether the cap is less than a number.
    pub fn is_capped_below(&self, streams: usize) -> bool {
        self.cap < streams
    }

    /// Records that the server accepts no more than `open` connections, for the time `wait` of a
    /// Retry-After.
    pub fn refused(&mut self, open: usize, wait: Option<Duration>, now: Duration) {
        let last = self.last_refusal.filter(|last| now < last.until);
        let lasts = match (last, self.last_refusal) {
            // Another stream reports the same refusal.
            (Some(last), _) => last.lasts,
            (None, Some(before)) => (2 * before.lasts).min(LONGEST_REFUSAL),
            (None, None) => FIRST_REFUSAL,
        };
        let until = now.saturating_add(lasts.max(wait.unwrap_or_default()));
        let until = last.map_or(until, |last| until.max(last.until));
        self.last_refusal = Some(ServerRefusal { open: open.max(1), until, lasts });
    }

    /// Returns the limit at `now`.
    pub fn at(&self, now: Duration) -> usize {
        let most = self.most.min(self.cap);
        match self.last_refusal {
            Some(refusal) if now < refusal.until => most.min(refusal.open),
            _ => most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn refusal_lasts_twice_as_long_when_repeated_and_at_least_as_retry_after() {
        let mut limit = StreamLimit::new(64);
        limit.refused(4, None, SEC(10));
        limit.refused(3, None, SEC(11));
        assert_eq!([3, 3, 64], [SEC(12), SEC(70), SEC(71)].map(|now| limit.at(now)));
        limit.refused(0, None, SEC(80));
        assert_eq!([1, 64], [SEC(199), SEC(200)].map(|now| limit.at(now)));
        // Retry-After lengthens a refusal, and later ones do not shorten it.
        let mut limit = StreamLimit::new(64);
        limit.refused(4, Some(SEC(1)), SEC(0));
        assert_eq!([4, 64], [SEC(59), SEC(60)].map(|now| limit.at(now)));
        limit.refused(4, Some(SEC(3600)), SEC(100));
        limit.refused(2, None, SEC(101));
        assert_eq!([2, 64], [SEC(3699), SEC(3700)].map(|now| limit.at(now)));
        limit.refused(2, Some(Duration::MAX), SEC(4000));
        assert_eq!(limit.at(SEC(u64::MAX / 2)), 2);
    }

    #[test]
    fn cap_lowers_the_limit_and_never_raises_it() {
        let mut limit = StreamLimit::new(8);
        let capped = [4, 0, 100].map(|cap| {
            limit.set_cap(cap);
            limit.at(SEC(1))
        });
        assert_eq!(capped, [4, 1, 8]);
        limit.refused(3, None, SEC(1));
        assert_eq!(limit.at(SEC(2)), 3);
    }
}
