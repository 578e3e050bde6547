//! How many streams there may be: what the user allows, and what the server allows for now.

use std::time::Duration;

/// For how long a refusal counts at first; twice as long after each further one,
const FIRST: Duration = Duration::from_secs(60);
/// up to this.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub(super) struct Ceiling {
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
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), refused: None }
    }

    /// Notes that the server takes no more than `open`.
    pub(super) fn refuse(&mut self, open: usize, now: Duration) {
        let lasts = match self.refused {
            None => FIRST,
            // The same refusal, seen by several streams.
            Some(last) if now < last.until => last.lasts,
            Some(last) => (2 * last.lasts).min(LONGEST),
        };
        self.refused = Some(Refusal { open: open.max(1), until: now.saturating_add(lasts), lasts });
    }

    pub(super) fn at(&self, now: Duration) -> usize {
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
        ceiling.refuse(4, SEC(10));
        ceiling.refuse(3, SEC(11));
        assert_eq!([3, 3, 64], [SEC(12), SEC(70), SEC(71)].map(|now| ceiling.at(now)));
        ceiling.refuse(0, SEC(80));
        assert_eq!([1, 64], [SEC(199), SEC(200)].map(|now| ceiling.at(now)));
    }
}
