//! How many streams a server that has refused one may be asked for.

use std::time::{Duration, Instant};

use crate::transfer::crew::Refusal;

/// A bound on the number of streams, for a time that doubles with each refusal.
#[derive(Debug, Default)]
pub(super) struct Ceiling {
    refusals: u32,
    bound: Option<(usize, Instant)>,
}

/// How long the first refusal counts where the server does not say; and the longest of all.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);
/// No transfer lasts longer than what a server may ask for.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

impl Ceiling {
    /// Accounts for a refusal.
    pub(super) fn refused(&mut self, refusal: Refusal) {
        // One that is seen by several streams is one.
        if self.bound.is_none_or(|(_, until)| refusal.at >= until) {
            self.refusals += 1;
        }
        let own = FIRST.saturating_mul(1 << (self.refusals - 1).min(10)).min(LONGEST);
        let wait = refusal.wait.map_or(own, |wait| wait.clamp(own, FOR_EVER));
        self.bound = Some((refusal.open, refusal.at + wait));
    }

    /// Returns how many of the streams that are wanted there may be.
    pub(super) fn within(&self, wanted: usize, now: Instant) -> usize {
        match self.bound {
            Some((open, until)) if now < until => wanted.min(open),
            _ => wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_left_alone_for_longer_each_time_and_as_long_as_it_asks() {
        let now = Instant::now();
        let mut ceiling = Ceiling::default();
        assert_eq!(ceiling.within(9, now), 9);
        let after = |secs: u64| now + Duration::from_secs(secs);
        ceiling.refused(Refusal { open: 3, wait: None, at: now });
        assert_eq!(
            [ceiling.within(9, after(9)), ceiling.within(2, now), ceiling.within(9, after(10))],
            [3, 2, 9]
        );
        ceiling.refused(Refusal { open: 2, wait: None, at: after(1) });
        assert_eq!([ceiling.within(9, after(10)), ceiling.within(9, after(11))], [2, 9], "the same");
        ceiling.refused(Refusal { open: 4, wait: None, at: after(20) });
        assert_eq!([ceiling.within(9, after(39)), ceiling.within(9, after(40))], [4, 9]);
        ceiling.refused(Refusal { open: 4, wait: Some(Duration::from_secs(3600)), at: now });
        assert_eq!(ceiling.within(9, after(3599)), 4);
        ceiling.refused(Refusal { open: 1, wait: Some(Duration::MAX), at: now });
        assert_eq!(ceiling.within(9, after(86_400)), 1);
    }
}
