//! Paces overdue frames after a scheduling delay of the link.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use crate::model::Time;

/// Overdue frames are paced at this multiple of the line rate: sent at once, they would be a burst
/// that no line carries.
const FASTER: f64 = 1.1;
/// A link that is further behind stops pacing: late frames distort an experiment more than bursts.
const MAX_DEBT: Duration = Duration::from_millis(10);

/// Schedules frames: at their due time, or later behind overdue frames.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// The pace of overdue frames; `None` for a path without a rate.
    rate: Option<Rate>,
    /// Lateness up to this is tolerated and made up without pacing.
    allowed: Duration,
    /// The earliest departure of the next frame.
    next: Time,
}

impl CatchUp {
    /// Creates a scheduler for a line of `rate`.
    pub(super) fn new(rate: Option<Rate>, allowed: Duration) -> Self {
        Self { rate: rate.map(|rate| rate.scaled(FASTER)), allowed, next: Time::START }
    }

    /// Returns the departure time of a frame due at `due`.
    pub(super) fn leaves(&self, due: Time) -> Time {
        due.max(self.next)
    }

    /// Records the departure at `now` of a frame of `bytes` due at `due`.
    pub(super) fn left(&mut self, due: Time, bytes: Bytes, now: Time) {
        let Some(rate) = self.rate else { return };
        let at = self.leaves(due);
        let late = now.since(at);
        if at > due || late > self.allowed {
            let lost = now.since(due) > MAX_DEBT;
            let from = at + late.saturating_sub(self.allowed);
            self.next = if lost { Time::START } else { from + rate.time_for(bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::micros as at;

    const ALLOWED_LATENESS: Duration = Duration::from_micros(100);

    /// Sends frames of 1000 bytes, due every 10 us, over a link that stalls from 1 ms to 3 ms;
    /// returns due time and departure of each.
    fn departures(rate: Option<Rate>) -> Vec<(Time, Time)> {
        let mut catch_up = CatchUp::new(rate, ALLOWED_LATENESS);
        let mut clock = Time::START;
        (0..5000)
            .map(|index| {
                let due = at(10 * index);
                clock = clock.max(catch_up.leaves(due));
                if clock >= at(1000) {
                    clock = clock.max(at(3000));
                }
                catch_up.left(due, Bytes::new(1000), clock);
                (due, clock)
            })
            .collect()
    }

    #[test]
    fn overdue_frames_are_paced_just_above_the_line_rate() {
        let departures = departures(Some(Rate::bits_per_sec(800_000_000)));
        let within =
            |from, to| departures.iter().filter(|(_, left)| (at(from)..at(to)).contains(left)).count();
        assert_eq!((within(0, 1000), within(1000, 3000)), (100, 0));
        for from in (3000..24_000).step_by(500) {
            // The first 100 us also include the tolerated lateness.
            let (most, seen) = (if from == 3000 { 122 } else { 111 }, within(from, from + 1000));
            assert!((100..=most).contains(&seen), "{from}: {seen}");
        }
        // Catching up 2 ms at 1.1 times the rate takes 20 ms.
        let caught_up = departures.iter().find(|(due, left)| *left >= at(3000) && left == due);
        assert!(caught_up.is_some_and(|(due, _)| (at(21_000)..at(25_500)).contains(due)), "{caught_up:?}");
        assert!(departures.iter().all(|(due, left)| left >= due));
    }

    #[test]
    fn without_a_rate_overdue_frames_depart_at_once() {
        let late = departures(None).into_iter().filter(|(_, left)| *left == at(3000)).count();
        assert_eq!(late, 201);
    }

    #[test]
    fn only_a_backlog_between_the_allowed_and_the_largest_is_paced() {
        // Lateness of the first and second frame, and the earliest departure of the next after
        // each.
        for (late, next) in [([100, 200], [None, Some(120)]), ([9_999, 10_001], [Some(9_000), None])] {
            let mut catch_up = CatchUp::new(Some(Rate::bits_per_sec(800_000_000)), ALLOWED_LATENESS);
            for (due, (late, next)) in [10, 20].into_iter().zip(late.into_iter().zip(next)) {
                catch_up.left(at(due), Bytes::new(1000), at(due + late));
                let leaves = catch_up.leaves(at(due + 10));
                let is_right = next.map_or(leaves == at(due + 10), |next| leaves > at(next));
                assert!(is_right, "{late} us: {leaves:?}");
            }
        }
    }
}
