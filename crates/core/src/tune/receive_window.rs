//! Clamps the receive window near the BDP, so that a remote sender does not overflow the bottleneck's queue.
//!
//! The window of a loss-based sender grows until a packet is lost, and the kernel's autotuning opens the receive window
//! (RWIN) ahead of it. On a long fat path with a queue of one BDP, hundreds of megabytes are lost at once. The receiver
//! detects the growing queue in the RTT of the data. A larger window then gains no goodput (rate <= RWIN/RTT), and RWIN
//! = 1.25 x BDP keeps the path full.
//!
//! The clamp follows the highest sustained rate; one of several connections starts with a share of the planned rate.
//! The clamp opens as soon as there is no queue, because it is then too small. It never shrinks, so that loss-based
//! neighbours cannot starve the connection. If the window does not explain the queue, other flows fill it: the clamp is
//! released until the queue has drained, or for 128 RTTs, after which the queue may be this connection's own.
//!
//! The RTT of the data alone proves no queue: it contains the pauses of a server that limits its rate. A link whose queue stands is never idle,
//! so arrivals that pause show that there is none.

use std::time::Duration;

use crate::plan::LARGEST_WINDOW;
use crate::units::{Bytes, Rate, Rtt};

/// Chooses the window clamp of one connection, once per RTT.
#[derive(Debug, Clone, Default)]
pub struct ReceiveWindowTuner {
    last: Rate,
    /// The highest rate sustained for two RTTs.
    best: Rate,
    clamp: Option<Bytes>,
    /// RTTs in which other flows filled the queue, less RTTs in which they did not.
    crowded: u32,
    /// RTTs in a row in which the arrivals paused too long for a queue.
    idle: u32,
}

/// The least queue, as a share of the BDP, that shows that the path is full.
const FULL_QUEUE: f64 = 0.25;
/// A queue below this share of the BDP is noise.
const NOISE_QUEUE_SHARE: f64 = 0.05;
/// A queue that exceeds the one explained by the window by this share of the BDP belongs to other flows.
const UNEXPLAINED_QUEUE: f64 = 0.25;
/// The number of RTTs, counted as in `ReceiveWindowTuner::crowded`, from which other flows fill the queue.
const CROWDED_RTTS: u32 = 8;
/// The clamp returns after this many RTTs, to test whether this connection itself fills the queue.
const RELEASED_RTTS: u32 = 128;
/// The least share of the window in flight at which the window counts as used.
const USED_SHARE: (u64, u64) = (4, 5);
/// A rate that grows by a smaller factor per RTT is steady.
const STEADY_GROWTH: (u64, u64) = (11, 10);
/// The window relative to the BDP; also its growth per RTT while it is too small.
const WINDOW_PER_BDP: (u64, u64) = (5, 4);
/// Arrivals that pause for this share of the apparent queue show that there is none.
const PAUSE_SHARE: f64 = 0.5;
/// A clamp opens after this many such RTTs; one may be a host's.
const IDLE_RTTS: u32 = 2;
/// The smallest clamp: below it single packets dominate the measurements.
const MIN_CLAMP: Bytes = Bytes::mib(2);

impl ReceiveWindowTuner {
    /// Starts with a window for `share`, one connection's part of the planned BDP, because several unclamped
    /// connections would overshoot together before any of them measures a queue.
    pub fn of_several(share: Bytes) -> Self {
        Self { clamp: Some(with_margin(share).clamp(MIN_CLAMP, LARGEST_WINDOW)), ..Self::default() }
    }

    /// Observes an RTT: data arrived at `rate` with the RTT `data_rtt` and pauses of at most `pause`, on a path whose RTT without a queue
    /// is `rtt`.
    ///
    /// Returns the clamp to set, if any. The clamp is never below `share`, one of several connections' part of the
    /// path: a connection that starts with the others' queue present would otherwise stay small.
    pub fn observe(
        &mut self,
        rate: Rate,
        rtt: Rtt,
        data_rtt: Rtt,
        pause: Duration,
        share: Bytes,
    ) -> Option<Bytes> {
        // Several connections take turns at a queue; each of them pauses.
        let excess = data_rtt.get().saturating_sub(rtt.get());
        let pauses = share == Bytes::ZERO
            && pause > excess.mul_f64(PAUSE_SHARE).max(rtt.get().mul_f64(NOISE_QUEUE_SHARE));
        self.idle = if pauses { self.idle + 1 } else { 0 };
        if self.idle >= IDLE_RTTS {
            let clamp = self.clamp.take();
            *self = Self { best: rate, last: rate, idle: self.idle, ..Self::default() };
            return clamp.map(|_| LARGEST_WINDOW);
        }
        let queue = data_rtt.get().as_secs_f64() / rtt.get().as_secs_f64().max(1e-9) - 1.0;
        // Slow start sends each window as a burst, so a queue is meaningful only once the rate is steady.
        let steady = rate.as_bits_per_sec() < scale(self.last.as_bits_per_sec(), STEADY_GROWTH);
        self.best = self.best.max(self.last.min(rate));
        self.last = rate;
        if self.is_released() {
            self.crowded += 1;
            if queue < NOISE_QUEUE_SHARE || self.crowded > RELEASED_RTTS {
                // The search restarts from the present rate.
                *self = Self { best: rate, last: rate, ..Self::default() };
            }
            return Some(LARGEST_WINDOW);
        }
        self.crowded = if self.is_crowded(rate, rtt, data_rtt, share) {
            self.crowded + 1
        } else {
            self.crowded.saturating_sub(1)
        };
        let needed = |best: Rate| with_margin(best.bdp(rtt)).max(MIN_CLAMP);
        self.clamp = match self.clamp {
            None if steady && queue > FULL_QUEUE && self.idle == 0 => Some(needed(self.best.max(rate))),
            None => None,
            // The whole window is in flight without a queue: the window is the limit.
            Some(clamp) if queue < NOISE_QUEUE_SHARE && with_margin(rate.bdp(rtt)) > clamp => {
                Some(with_margin(clamp))
            }
            Some(clamp) => Some(clamp.max(needed(self.best))),
        }
        .map(|clamp| clamp.max(with_margin(share)).min(LARGEST_WINDOW));
        self.clamp
    }

    /// Returns whether the queue is longer than this connection's window explains, while the window is used.
    fn is_crowded(&self, rate: Rate, rtt: Rtt, data_rtt: Rtt, share: Bytes) -> bool {
        let Some(clamp) = self.clamp.filter(|_| share == Bytes::ZERO) else { return false };
        let in_all = data_rtt.get().as_secs_f64() / rtt.get().as_secs_f64().max(1e-9);
        let own = clamp.get() as f64 / self.best.max(rate).bdp(rtt).get().max(1) as f64;
        in_all > own.max(1.0) + UNEXPLAINED_QUEUE && rate.bdp(data_rtt).get() > scale(clamp.get(), USED_SHARE)
    }

    /// Returns whether the clamp is released because other flows fill the queue; a window near the BDP would leave the
    /// capacity to them.
    fn is_released(&self) -> bool {
        self.crowded >= CROWDED_RTTS
    }
}

fn with_margin(size: Bytes) -> Bytes {
    Bytes::new(scale(size.get(), WINDOW_PER_BDP))
}

fn scale(value: u64, (num, den): (u64, u64)) -> u64 {
    value.saturating_mul(num) / den
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::window_ceiling;

    const RTT: Rtt = Rtt::new(Duration::from_millis(200));

    /// A path whose queue never overflows, and a sender that doubles its window per RTT.
    struct SimulatedPath {
        rate: Rate,
        window: f64,
        held: f64,
        /// Data of other flows in flight, in BDPs.
        others: f64,
    }

    impl SimulatedPath {
        fn bdp(&self) -> f64 {
            self.rate.bdp(RTT).get() as f64
        }

        fn new(gbit: u64) -> Self {
            Self { rate: Rate::mbit(1000 * gbit), window: 14_480.0, held: f64::INFINITY, others: 0.0 }
        }

        /// Runs for `round_trips` RTTs; returns the data in flight, in BDPs.
        fn run(&mut self, tuner: &mut ReceiveWindowTuner, round_trips: u32) -> f64 {
            let bdp = self.bdp();
            let mut load = 0.0;
            for _ in 0..round_trips {
                load = self.window.min(self.held) / bdp;
                // A FIFO queue serves flows in proportion to their input.
                let in_all = (load + self.others).max(1.0);
                let rate = Rate::over(Bytes::new((bdp * load / in_all) as u64), RTT.get());
                let data_rtt = Rtt::new(RTT.get().mul_f64(in_all));
                if let Some(clamp) = tuner.observe(rate, RTT, data_rtt, Duration::ZERO, Bytes::ZERO) {
                    self.held = clamp.get() as f64;
                }
                self.window *= 2.0;
            }
            load
        }
    }

    /// Returns a path of `gbit` Gbit/s, and its tuner after 30 round trips.
    fn settled(gbit: u64) -> (SimulatedPath, ReceiveWindowTuner) {
        let (mut path, mut tuner) = (SimulatedPath::new(gbit), ReceiveWindowTuner::default());
        path.run(&mut tuner, 30);
        (path, tuner)
    }

    #[track_caller]
    fn assert_within(held: f64, range: std::ops::Range<f64>) {
        assert!(range.contains(&held), "{held}");
    }

    #[test]
    fn window_is_clamped_only_once_the_path_is_full() {
        let (mut path, mut tuner) = (SimulatedPath::new(10), ReceiveWindowTuner::default());
        assert!(path.run(&mut tuner, 14) < 1.0 && path.held.is_infinite());
        assert_within(path.run(&mut tuner, 20), 1.2..1.3);
    }

    #[test]
    fn arrivals_that_pause_show_that_there_is_no_queue() {
        // nginx with `limit_rate 10m` at 100 ms: the RTT of the data is 184 ms, and 84 ms of it are pauses.
        let (rate, rtt, data_rtt) =
            (Rate::mbit(80), Rtt::new(Duration::from_millis(100)), Rtt::new(Duration::from_millis(184)));
        let observe = |tuner: &mut ReceiveWindowTuner, pause_ms| {
            tuner.observe(rate, rtt, data_rtt, Duration::from_millis(pause_ms), Bytes::ZERO)
        };
        let mut tuner = ReceiveWindowTuner::default();
        assert!((0..20).all(|_| observe(&mut tuner, 80).is_none()));
        // Without pauses it is a queue. A clamp opens again once pauses repeat.
        assert!(
            (0..3).filter_map(|_| observe(&mut tuner, 4)).all(|clamp| clamp < LARGEST_WINDOW)
                && tuner.clamp.is_some()
        );
        assert!(observe(&mut tuner, 80) < Some(LARGEST_WINDOW));
        assert_eq!(observe(&mut tuner, 80), Some(LARGEST_WINDOW));
        assert_eq!(observe(&mut tuner, 80), None);
    }

    #[test]
    fn clamp_follows_a_path_that_becomes_faster_or_slower() {
        let (mut path, mut tuner) = settled(1);
        path.rate = Rate::mbit(10_000);
        assert_within(path.run(&mut tuner, 20), 1.05..1.35);
        let (mut path, mut tuner) = settled(10);
        path.rate = Rate::mbit(5000);
        for _ in 0..300 {
            path.window = 4.0 * path.bdp();
            path.run(&mut tuner, 1);
        }
        assert_within(path.held / path.bdp(), 1.2..1.3);
    }

    #[test]
    fn clamp_below_the_bdp_grows_and_is_kept_while_unused() {
        let mut tuner = ReceiveWindowTuner::default();
        let (slow, noise) = (Rate::mbit(70), Rtt::new(Duration::from_millis(300)));
        tuner.observe(slow, RTT, RTT, Duration::ZERO, Bytes::ZERO);
        let mut clamp = tuner.observe(slow, RTT, noise, Duration::ZERO, Bytes::ZERO).unwrap();
        assert_eq!(clamp, Bytes::new(2_187_500));
        for _ in 0..40 {
            clamp = tuner.observe(window_ceiling(clamp, RTT), RTT, RTT, Duration::ZERO, Bytes::ZERO).unwrap();
        }
        assert_eq!(clamp, LARGEST_WINDOW);
        // The clamp is kept while the window is unused, or other flows queue.
        for (mbit, data_rtt_ms) in [(5000, 200), (2000, 600)] {
            let (path, mut tuner) = settled(10);
            let data_rtt = Rtt::new(Duration::from_millis(data_rtt_ms));
            let clamps = (0..50)
                .filter_map(|_| tuner.observe(Rate::mbit(mbit), RTT, data_rtt, Duration::ZERO, Bytes::ZERO));
            assert_eq!(clamps.last().map(|clamp| clamp.get() as f64), Some(path.held), "{mbit} Mbit/s");
        }
    }

    #[test]
    fn one_of_several_connections_keeps_its_share_and_grows_when_its_rate_does() {
        let mut tuner = ReceiveWindowTuner::of_several(Bytes::mib(16));
        assert_eq!(tuner.clamp, Some(Bytes::mib(20)));
        for _ in 0..20 {
            tuner.observe(window_ceiling(tuner.clamp.unwrap(), RTT), RTT, RTT, Duration::ZERO, Bytes::ZERO);
        }
        assert_eq!(tuner.clamp, Some(LARGEST_WINDOW));
        assert_eq!(ReceiveWindowTuner::of_several(Bytes::ZERO).clamp, Some(MIN_CLAMP));
        let mut tuner = ReceiveWindowTuner::default();
        let (slow, crowded, share) = (Rate::mbit(70), Rtt::new(Duration::from_millis(600)), Bytes::mib(20));
        assert_eq!(tuner.observe(slow, RTT, RTT, Duration::ZERO, share), None);
        assert_eq!(tuner.observe(slow, RTT, crowded, Duration::ZERO, share), Some(Bytes::mib(25)));
        // Another connection has closed, and its share is free.
        assert_eq!(tuner.observe(slow, RTT, crowded, Duration::ZERO, share * 2), Some(Bytes::mib(50)));
    }

    #[test]
    fn clamp_is_released_while_other_flows_fill_the_queue() {
        let (mut path, mut tuner) = (SimulatedPath::new(1), ReceiveWindowTuner::default());
        path.others = 1.4;
        // The sender's window is as large as that of the other flows.
        let run = |path: &mut SimulatedPath, tuner: &mut ReceiveWindowTuner, round_trips| {
            for _ in 0..round_trips {
                path.window = 1.4 * path.bdp();
                path.run(tuner, 1);
            }
        };
        run(&mut path, &mut tuner, 5);
        assert!(path.held < path.bdp(), "{}", path.held);
        run(&mut path, &mut tuner, 30);
        assert_eq!(path.held, LARGEST_WINDOW.get() as f64);
        // The other flows end: after an RTT without a queue, a new queue is this connection's own.
        (path.others, path.window) = (0.0, 1e6);
        path.run(&mut tuner, 14);
        assert_within(path.held / path.bdp(), 1.2..1.3);
    }
}
