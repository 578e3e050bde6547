//! How far to go in one direction, and when again: further after each success, less and more rarely after each failure.

use std::time::Duration;

/// The rest after a first failure; twice as long after each further one,
const SHORTEST: Duration = Duration::from_secs(4);
/// up to this: what is tried then costs next to nothing, and a change of the path is still found within a minute.
const LONGEST: Duration = Duration::from_secs(64);
/// The least step is this part of the streams, so that its effect stands out from noise.
const LEAST: usize = 8;

/// Patience in one direction.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    step: usize,
    rest: Duration,
    due: Duration,
}

impl Patience {
    pub(super) const fn new(step: usize) -> Self {
        Self { step, rest: SHORTEST, due: Duration::ZERO }
    }

    /// Returns by how many streams to go from `streams`: at most by as many again.
    pub(super) fn step(&self, streams: usize) -> usize {
        self.step.clamp((streams / LEAST).max(1), streams.max(1))
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// Returns whether it failed of late.
    pub(super) fn rests(&self, now: Duration) -> bool {
        !self.is_due(now)
    }

    /// Goes on, twice as far.
    pub(super) fn succeeded(&mut self, now: Duration) {
        self.step = self.step.saturating_mul(2).max(2);
        self.rest = SHORTEST;
        self.due = now;
    }

    /// Rests, and begins with a small step afterwards.
    pub(super) fn failed(&mut self, now: Duration) {
        self.due = now.saturating_add(self.rest);
        self.rest = (2 * self.rest).min(LONGEST);
        self.step = 1;
    }

    /// Goes on with a small step.
    pub(super) fn tread_softly(&mut self) {
        self.step = 1;
    }

    /// Goes on with a small step, and not at once.
    pub(super) fn hesitate(&mut self, now: Duration) {
        self.due = self.due.max(now.saturating_add(SHORTEST));
        self.tread_softly();
    }

    /// Begins anew after a short rest: the path is no longer what it was.
    pub(super) fn renew(&mut self, now: Duration) {
        self.due = self.due.min(now.saturating_add(SHORTEST));
        self.rest = SHORTEST;
        self.step = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn failures_make_it_rare_and_small_and_successes_bold() {
        let mut up = Patience::new(usize::MAX);
        assert_eq!((up.step(16), up.step(1)), (16, 1));
        up.failed(SEC(10));
        assert_eq!((up.step(16), up.step(7), up.is_due(SEC(13)), up.is_due(SEC(14))), (2, 1, false, true));
        for _ in 0..10 {
            up.failed(SEC(100));
        }
        assert!(up.rests(SEC(163)) && up.is_due(SEC(164)));
        up.succeeded(SEC(164));
        up.succeeded(SEC(165));
        assert_eq!((up.step(16), up.step(3), up.is_due(SEC(165))), (4, 3, true));
        up.failed(SEC(200));
        up.failed(SEC(200));
        up.renew(SEC(201));
        assert!(up.is_due(SEC(205)));
        up.hesitate(SEC(206));
        assert!(up.rests(SEC(209)) && up.is_due(SEC(210)));
    }
}
