//! How far to go in one direction, and when again: further after each success, less and more rarely after each failure.

use std::time::Duration;

/// A rest after a failure is twice as long as after the one before, up to so many of the first.
const LONGEST: u32 = 8;
/// The least step is this part of the streams, rounded down, so that its effect stands out from noise.
const LEAST: usize = 8;

/// StepBackoff in one direction.
#[derive(Debug, Clone)]
pub(super) struct StepBackoff {
    step: usize,
    /// The rest after a first failure.
    shortest: Duration,
    rest: Duration,
    due: Duration,
}

impl StepBackoff {
    pub(super) const fn new(step: usize, shortest: Duration) -> Self {
        Self { step, shortest, rest: shortest, due: Duration::ZERO }
    }

    /// Returns by how many streams to go from `streams`: at most by as many again.
    pub(super) fn step(&self, streams: usize) -> usize {
        self.step.clamp((streams / LEAST).max(1), streams.max(1))
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// Goes on, twice as far.
    pub(super) fn succeeded(&mut self, now: Duration) {
        self.step = self.step.saturating_mul(2).max(2);
        self.rest = self.shortest;
        self.due = now;
    }

    /// Rests, and begins with a small step afterwards.
    pub(super) fn failed(&mut self, now: Duration) {
        self.due = now.saturating_add(self.rest);
        self.rest = self.rest.saturating_mul(2).min(self.shortest.saturating_mul(LONGEST));
        self.step = 1;
    }

    /// Goes on with a small step.
    pub(super) fn tread_softly(&mut self) {
        self.step = 1;
    }

    /// Goes on with a small step, and not at once.
    pub(super) fn hesitate(&mut self, now: Duration) {
        self.due = self.due.max(now.saturating_add(self.shortest));
        self.tread_softly();
    }

    /// Begins anew after a short rest: the path is no longer what it was.
    pub(super) fn renew(&mut self, now: Duration) {
        self.due = self.due.min(now.saturating_add(self.shortest));
        self.rest = self.shortest;
        self.step = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn failures_make_it_rare_and_small_and_successes_bold() {
        let mut up = StepBackoff::new(usize::MAX, SEC(4));
        assert_eq!((up.step(16), up.step(1)), (16, 1));
        up.failed(SEC(10));
        assert_eq!((up.step(16), up.step(15), up.is_due(SEC(13)), up.is_due(SEC(14))), (2, 1, false, true));
        for _ in 0..10 {
            up.failed(SEC(100));
        }
        assert!(!up.is_due(SEC(131)) && up.is_due(SEC(132)));
        up.succeeded(SEC(164));
        up.succeeded(SEC(165));
        assert_eq!((up.step(16), up.step(3), up.is_due(SEC(165))), (4, 3, true));
        up.failed(SEC(200));
        up.failed(SEC(200));
        up.renew(SEC(201));
        assert!(up.is_due(SEC(205)));
        up.hesitate(SEC(206));
        assert!(!up.is_due(SEC(209)) && up.is_due(SEC(210)));
    }
}
