//! Step size and backoff of trials in one direction: larger steps after each success, smaller and
//! rarer ones after each failure.

use std::time::Duration;

/// The backoff doubles after each failure, up to this multiple of the first.
const MAX_REST_FACTOR: u32 = 8;
/// The smallest step is one part in this many of the streams, rounded down, so that its effect
/// exceeds the noise.
const MIN_STEP_PART: usize = 8;

/// Step size and backoff in one direction, up or down.
#[derive(Debug, Clone)]
pub(super) struct StepBackoff {
    step: usize,
    /// The backoff after a first failure.
    shortest: Duration,
    rest: Duration,
    due: Duration,
}

impl StepBackoff {
    pub(super) const fn new(step: usize, shortest: Duration) -> Self {
        Self { step, shortest, rest: shortest, due: Duration::ZERO }
    }

    /// Returns the step from `streams`: at most as many as there are.
    pub(super) fn step(&self, streams: usize) -> usize {
        self.step.clamp((streams / MIN_STEP_PART).max(1), streams.max(1))
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// Doubles the step; the next trial is due at once.
    pub(super) fn succeeded(&mut self, now: Duration) {
        self.step = self.step.saturating_mul(2).max(2);
        self.rest = self.shortest;
        self.due = now;
    }

    /// Backs off; the next step is small.
    pub(super) fn failed(&mut self, now: Duration) {
        self.due = now.saturating_add(self.rest);
        self.rest = self.rest.saturating_mul(2).min(self.shortest.saturating_mul(MAX_REST_FACTOR));
        self.step = 1;
    }

    /// Makes the next step small.
    pub(super) fn use_small_step(&mut self) {
        self.step = 1;
    }

    /// Makes the next step small, after at least the first backoff.
    pub(super) fn postpone(&mut self, now: Duration) {
        self.due = self.due.max(now.saturating_add(self.shortest));
        self.use_small_step();
    }

    /// Restarts with the first backoff after a change of the path.
    pub(super) fn restart(&mut self, now: Duration) {
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
    fn failures_shrink_and_delay_steps_and_successes_enlarge_them() {
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
        up.restart(SEC(201));
        assert!(up.is_due(SEC(205)));
        up.postpone(SEC(206));
        assert!(!up.is_due(SEC(209)) && up.is_due(SEC(210)));
    }
}
