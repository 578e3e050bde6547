//! A receive window held near the BDP, so that a sender cannot fill the path's queue until it overflows.
//!
//! A sender's window grows until something is lost, and the kernel's autotuning opens RWIN ahead of it.
//! On a long fat path with a queue of a BDP that ends in hundreds of megabytes lost at once. The
//! receiver sees it coming: its data's round trip grows as the queue does. From then on a larger window
//! buys no goodput (rate <= RWIN/RTT), and RWIN = 1.25 x BDP keeps the path full.
//!
//! The window follows what the path has carried (of several connections it begins with what the path is planned to), and opens
//! again as soon as there is no queue: where it is too small, there is none. It never shrinks, so that loss-based neighbours cannot
//! starve it; and where a queue stands that it does not explain, others fill it, and it is not held until that has gone, nor for long without
//! looking whether it is our own by now.

use crate::plan::LARGEST_WINDOW;
use crate::units::{Bytes, Rate, Rtt};

/// Chooses the window clamp of one connection, once a round trip.
#[derive(Debug, Clone, Default)]
pub struct ReceiveWindowTuner {
    last: Rate,
    /// The highest rate that was sustained for two round trips.
    best: Rate,
    clamp: Option<Bytes>,
    /// For how many round trips, more than not, others have filled the queue.
    crowded: u32,
}

/// A queue of this share of the BDP means that the path is full.
const FULL: f64 = 0.25;
/// Below this share there is no queue, only noise.
const NONE: f64 = 0.05;
/// A queue that is longer than the window explains by this share of the BDP is of others,
const OTHERS: f64 = 0.25;
/// who fill it, where that was so for so many round trips more than not.
const PATIENCE: u32 = 8;
/// After so many it is held again, to see whether it is our own that fills the queue.
const RELEASED: u32 = 128;
/// The share of the window in flight that is as good as all.
const USED: (u64, u64) = (4, 5);
/// A rate that grows by less in a round trip has stopped to.
const GROWTH: (u64, u64) = (11, 10);
/// The window over the BDP; also how fast it opens again.
const ROOM: (u64, u64) = (5, 4);
/// Below this a window is never held: single packets dominate what is measured.
const SMALLEST: Bytes = Bytes::mib(2);

impl ReceiveWindowTuner {
    /// Starts with a window for this share of a path whose rate is planned: several that begin at once would overshoot together
    /// before any of them sees a queue.
    pub fn of_several(share: Bytes) -> Self {
        Self { clamp: Some(more(share).clamp(SMALLEST, LARGEST_WINDOW)), ..Self::default() }
    }

    /// Observes a round trip: data arrived at `rate`, and took `data_rtt` where the empty path takes `rtt`.
    ///
    /// Returns the clamp to have in force, if any; not below `share`, which several connections have of what the path
    /// carries: one that finds the others' queue at its start would otherwise stay small.
    pub fn observe(&mut self, rate: Rate, rtt: Rtt, data_rtt: Rtt, share: Bytes) -> Option<Bytes> {
        let queue = data_rtt.get().as_secs_f64() / rtt.get().as_secs_f64().max(1e-9) - 1.0;
        // Slow start sends each window as a clump: while the rate still grows, a queue is only that.
        let steady = rate.as_bits_per_sec() < scale(self.last.as_bits_per_sec(), GROWTH);
        self.best = self.best.max(self.last.min(rate));
        self.last = rate;
        if self.is_released() {
            self.crowded += 1;
            if queue < NONE || self.crowded > RELEASED {
                // What passes now is what is known of the path.
                *self = Self { best: rate, last: rate, ..Self::default() };
            }
            return Some(LARGEST_WINDOW);
        }
        self.crowded = if self.is_crowded(rate, rtt, data_rtt, share) {
            self.crowded + 1
        } else {
            self.crowded.saturating_sub(1)
        };
        let needed = |best: Rate| more(best.bdp(rtt)).max(SMALLEST);
        self.clamp = match self.clamp {
            None if steady && queue > FULL => Some(needed(self.best.max(rate))),
            None => None,
            // All of the window is in flight and nothing waits: the window is what limits.
            Some(clamp) if queue < NONE && more(rate.bdp(rtt)) > clamp => Some(more(clamp)),
            Some(clamp) => Some(clamp.max(needed(self.best))),
        }
        .map(|clamp| clamp.max(more(share)).min(LARGEST_WINDOW));
        self.clamp
    }

    /// Says whether a queue stands that one connection's window does not explain, though all of it is in flight.
    fn is_crowded(&self, rate: Rate, rtt: Rtt, data_rtt: Rtt, share: Bytes) -> bool {
        let Some(clamp) = self.clamp.filter(|_| share == Bytes::ZERO) else { return false };
        let in_all = data_rtt.get().as_secs_f64() / rtt.get().as_secs_f64().max(1e-9);
        let own = clamp.get() as f64 / self.best.max(rate).bdp(rtt).get().max(1) as f64;
        in_all > own.max(1.0) + OTHERS && rate.bdp(data_rtt).get() > scale(clamp.get(), USED)
    }

    /// Says whether others fill the queue: a window near the BDP would leave everything to them.
    fn is_released(&self) -> bool {
        self.crowded >= PATIENCE
    }
}

fn more(size: Bytes) -> Bytes {
    Bytes::new(scale(size.get(), ROOM))
}

fn scale(value: u64, (num, den): (u64, u64)) -> u64 {
    value.saturating_mul(num) / den
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::window_ceiling;

    const RTT: Rtt = Rtt::new(Duration::from_millis(200));

    /// A path whose queue never overflows, and a sender that doubles its window every round trip.
    struct Path {
        rate: Rate,
        window: f64,
        held: f64,
        /// What others have in flight, in BDPs.
        others: f64,
    }

    impl Path {
        fn new(gbit: u64) -> Self {
            let rate = Rate::bits_per_sec(gbit * 1_000_000_000);
            Self { rate, window: 14_480.0, held: f64::INFINITY, others: 0.0 }
        }

        /// Runs for some round trips; returns what is in flight, in BDPs.
        fn run(&mut self, tuner: &mut ReceiveWindowTuner, round_trips: u32) -> f64 {
            let bdp = self.rate.bdp(RTT).get() as f64;
            let mut load = 0.0;
            for _ in 0..round_trips {
                load = self.window.min(self.held) / bdp;
                // A FIFO gives each its share.
                let in_all = (load + self.others).max(1.0);
                let rate = Rate::over(Bytes::new((bdp * load / in_all) as u64), RTT.get());
                let data_rtt = Rtt::new(RTT.get().mul_f64(in_all));
                if let Some(clamp) = tuner.observe(rate, RTT, data_rtt, Bytes::ZERO) {
                    self.held = clamp.get() as f64;
                }
                self.window *= 2.0;
            }
            load
        }
    }

    #[test]
    fn ramp_up_is_free_and_a_full_path_is_held() {
        let (mut path, mut tuner) = (Path::new(10), ReceiveWindowTuner::default());
        assert!(path.run(&mut tuner, 14) < 1.0 && path.held.is_infinite());
        let held = path.run(&mut tuner, 20);
        assert!((1.2..1.3).contains(&held), "{held}");
    }

    #[test]
    fn a_path_that_becomes_faster_is_followed() {
        let (mut path, mut tuner) = (Path::new(1), ReceiveWindowTuner::default());
        path.run(&mut tuner, 30);
        path.rate = Rate::bits_per_sec(10_000_000_000);
        let held = path.run(&mut tuner, 20);
        assert!((1.05..1.35).contains(&held), "{held}");
    }

    #[test]
    fn a_window_that_is_too_small_opens_again() {
        let mut tuner = ReceiveWindowTuner::default();
        let slow = Rate::bits_per_sec(70_000_000);
        let noise = Rtt::new(Duration::from_millis(300));
        tuner.observe(slow, RTT, RTT, Bytes::ZERO);
        assert_eq!(tuner.observe(slow, RTT, noise, Bytes::ZERO), Some(Bytes::new(2_187_500)));
        let mut clamp = Bytes::new(2_187_500);
        for _ in 0..40 {
            let limited = window_ceiling(clamp, RTT);
            clamp = tuner.observe(limited, RTT, RTT, Bytes::ZERO).unwrap();
        }
        assert_eq!(clamp, LARGEST_WINDOW);
    }

    #[test]
    fn a_window_that_nobody_fills_stays() {
        let (mut path, mut tuner) = (Path::new(10), ReceiveWindowTuner::default());
        path.run(&mut tuner, 30);
        let before = path.held;
        let after = (0..50)
            .filter_map(|_| tuner.observe(Rate::bits_per_sec(5_000_000_000), RTT, RTT, Bytes::ZERO))
            .last();
        assert_eq!(after.map(|clamp| clamp.get() as f64), Some(before));
    }

    #[test]
    fn one_of_several_opens_when_it_brings_more() {
        let mut tuner = ReceiveWindowTuner::of_several(Bytes::mib(16));
        assert_eq!(tuner.clamp, Some(Bytes::mib(20)));
        let limited = |tuner: &ReceiveWindowTuner| window_ceiling(tuner.clamp.unwrap(), RTT);
        for _ in 0..20 {
            tuner.observe(limited(&tuner), RTT, RTT, Bytes::ZERO);
        }
        assert_eq!(tuner.clamp, Some(LARGEST_WINDOW));
        assert_eq!(ReceiveWindowTuner::of_several(Bytes::ZERO).clamp, Some(SMALLEST));
    }

    #[test]
    fn one_of_several_is_not_held_below_its_share() {
        let mut tuner = ReceiveWindowTuner::default();
        let (slow, crowded) = (Rate::bits_per_sec(70_000_000), Rtt::new(Duration::from_millis(600)));
        let share = Bytes::mib(20);
        assert_eq!(tuner.observe(slow, RTT, RTT, share), None);
        assert_eq!(tuner.observe(slow, RTT, crowded, share), Some(Bytes::mib(25)));
        // Another has gone, and its share is free.
        assert_eq!(tuner.observe(slow, RTT, crowded, share * 2), Some(Bytes::mib(50)));
    }

    #[test]
    fn beside_others_who_fill_the_queue_it_is_not_held() {
        let (mut path, mut tuner) = (Path::new(1), ReceiveWindowTuner::default());
        path.others = 1.4;
        // The sender's window is as large as the others'.
        let run = |path: &mut Path, tuner: &mut ReceiveWindowTuner, round_trips| {
            for _ in 0..round_trips {
                path.window = 1.4 * path.rate.bdp(RTT).get() as f64;
                path.run(tuner, 1);
            }
        };
        run(&mut path, &mut tuner, 5);
        assert!(path.held < path.rate.bdp(RTT).get() as f64, "{}", path.held);
        run(&mut path, &mut tuner, 30);
        assert_eq!(path.held, LARGEST_WINDOW.get() as f64);
        // They go: once there was no queue, what makes one is our own window.
        path.others = 0.0;
        path.window = 1e6;
        path.run(&mut tuner, 14);
        let held = path.held / path.rate.bdp(RTT).get() as f64;
        assert!((1.2..1.3).contains(&held), "{held}");
    }

    #[test]
    fn on_a_path_that_has_become_slower_it_is_held_anew() {
        let (mut path, mut tuner) = (Path::new(10), ReceiveWindowTuner::default());
        path.run(&mut tuner, 30);
        path.rate = Rate::bits_per_sec(5_000_000_000);
        for _ in 0..300 {
            path.window = 4.0 * path.rate.bdp(RTT).get() as f64;
            path.run(&mut tuner, 1);
        }
        let held = path.held / path.rate.bdp(RTT).get() as f64;
        assert!((1.2..1.3).contains(&held), "{held}");
    }

    #[test]
    fn a_neighbours_queue_never_shrinks_it() {
        let (mut path, mut tuner) = (Path::new(10), ReceiveWindowTuner::default());
        path.run(&mut tuner, 30);
        let before = path.held;
        let crowded = Rtt::new(Duration::from_millis(600));
        let after = (0..50)
            .filter_map(|_| tuner.observe(Rate::bits_per_sec(2_000_000_000), RTT, crowded, Bytes::ZERO))
            .last();
        assert_eq!(after.map(|clamp| clamp.get() as f64), Some(before));
    }
}
