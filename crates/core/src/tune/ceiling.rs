//! How many streams there may be: what a tuner allows itself, and what the server allows for now.

use std::time::Duration;

/// For how long a refusal counts at first; twice as long after each further one,
const FIRST: Duration = Duration::from_secs(60);
/// up to this.
const LONGEST: Duration = Duration::from_secs(600);

/// A bound on the number of streams, lower for a time after each refusal.
#[derive(Debug, Clone)]
pub struct Ceiling {
    most: usize,
    refused: Option<Refusal>,
}

#[derive(Debug, Clone, Copy)]
struct Refusal {
    open: usize,
    until: Duration,
    lasts: Duration,
}

impl Ceiling {
    /// Allows `most` until the server says otherwise.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), refused: None }
    }

    /// Notes that the server takes no more than `open`, for `wait` where it has said so.
    pub fn refuse(&mut self, open: usize, wait: Option<Duration>, now: Duration) {
        let last = self.refused.filter(|last| now < last.until);
        let lasts = match (last, self.refused) {
            // The same refusal, seen by several streams.
            (Some(last), _) => last.lasts,
            (None, Some(before)) => (2 * before.lasts).min(LONGEST),
            (None, None) => FIRST,
        };
        let until = now.saturating_add(lasts.max(wait.unwrap_or_default()));
        let until = last.map_or(until, |last| until.max(last.until));
        self.refused = Some(Refusal { open: open.max(1), until, lasts });
    }

    /// Returns how many streams there may be at `now`.
    pub fn at(&self, now: Duration) -> usize {
        match self.refused {
            Some(refusal) if now < refusal.until => self.most.min(refusal.open),
            _ => self.most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_refusal_counts_for_a_while_and_for_longer_when_it_comes_again() {
        let mut ceiling = Ceiling::new(64);
        ceiling.refuse(4, None, SEC(10));
        ceiling.refuse(3, None, SEC(11));
        assert_eq!([3, 3, 64], [SEC(12), SEC(70), SEC(71)].map(|now| ceiling.at(now)));
        ceiling.refuse(0, None, SEC(80));
        assert_eq!([1, 64], [SEC(199), SEC(200)].map(|now| ceiling.at(now)));
    }

    #[test]
    fn as_long_as_the_server_asks_and_no_shorter_for_what_comes_after() {
        let mut ceiling = Ceiling::new(64);
        ceiling.refuse(4, Some(SEC(1)), SEC(0));
        assert_eq!([4, 64], [SEC(59), SEC(60)].map(|now| ceiling.at(now)));
        ceiling.refuse(4, Some(SEC(3600)), SEC(100));
        ceiling.refuse(2, None, SEC(101));
        assert_eq!([2, 64], [SEC(3699), SEC(3700)].map(|now| ceiling.at(now)));
        ceiling.refuse(2, Some(Duration::MAX), SEC(4000));
        assert_eq!(ceiling.at(SEC(u64::MAX / 2)), 2);
    }
}
