//! How much an idle worker steals from a slow one, once nothing else is left to lease.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

/// What a worker has leased and not received, and how it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// How much is outstanding.
    pub(super) left: Bytes,
    /// How fast it arrived over the last round trip.
    pub(super) rate: Rate,
    /// The RTT of the worker's connection.
    pub(super) rtt: Rtt,
    /// For how long the worker has had leases without a break.
    pub(super) age: Duration,
    /// For how long no byte has arrived.
    pub(super) silent: Duration,
    /// How many workers in a row have stalled on it.
    pub(super) stalls: u32,
}

/// A shorter silence is no stall, and a shorter wait is not worth a second request.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// A worker without data for this number of round trips has stalled: past a retransmission timeout
/// and its double. The rate of a worker that has had leases for a shorter time is that of a burst,
/// of slow start or of the idle time before.
const SILENT_RTTS: u32 = 8;
/// Each further worker on a stalled range gets twice the time, up to about a minute;
/// `--stall-timeout` bounds the rest.
const MAX_DOUBLINGS: u32 = 6;
/// The thief must halve the time left: the steal costs a connection.
const WORTH: f64 = 0.5;
/// A smaller part is not shared, but stolen whole.
const MIN_SHARED: Bytes = Bytes::kib(256);

/// Where this host holds the workers up, silence is no sign of a stall before this many times the
/// usual patience.
const HELD_UP_PATIENCE: u32 = 4;
/// This many connections that worked are taken over within a period; each costs a new connection,
/// and its slow start.
const MAX_TAKEOVERS: usize = 4;
/// The period of [`MAX_TAKEOVERS`].
const TAKEOVER_PERIOD: Duration = Duration::from_secs(5);

/// Bounds how often leases are taken from connections that worked, so that a pause of the path or
/// of this host does not make all of them connect anew.
#[derive(Debug, Clone, Default)]
pub(super) struct TakeoverLimit {
    /// When the latest ones were.
    latest: VecDeque<Duration>,
}

impl TakeoverLimit {
    /// Returns whether another may follow now.
    pub(super) fn allows(&self, now: Duration) -> bool {
        let begin = now.saturating_sub(TAKEOVER_PERIOD);
        self.latest.len() < MAX_TAKEOVERS || self.latest.front().is_none_or(|first| *first < begin)
    }

    pub(super) fn count(&mut self, now: Duration) {
        if self.latest.len() == MAX_TAKEOVERS {
            self.latest.pop_front();
        }
        self.latest.push_back(now);
    }
}

impl Load {
    /// Returns whether no data has arrived for longer than losses explain; twice as long after each
    /// earlier stall, so that a server that is merely slow to begin is waited for in the end.
    pub(super) fn is_stalled(&self) -> bool {
        self.silent >= self.patience().saturating_mul(1 << self.stalls.min(MAX_DOUBLINGS))
    }

    /// Returns whether the rate is known, and is not that of a short time.
    pub(super) fn is_measured(&self) -> bool {
        self.rate > Rate::default() && self.age >= self.patience()
    }

    fn patience(&self) -> Duration {
        MIN_WAIT.max(self.rtt.get().saturating_mul(SILENT_RTTS))
    }

    /// Returns how much of the tail an idle worker of `rate` should steal; `None` where stealing
    /// does not pay.
    ///
    /// All of a stalled load. Else as much as lets both finish at once, where that is much earlier.
    ///
    /// Where this host has `held_up` the workers, because tasks wait for the CPU or a limit bounds
    /// the rate, a slow load is no slower than others would be, and only what has stalled for much
    /// longer is stolen. Under a limit the rate over a round trip is that of a burst, or of the
    /// wait after it.
    pub(super) fn worth_stealing(&self, rate: Rate, held_up: bool) -> Option<Bytes> {
        if self.left == Bytes::ZERO {
            return None;
        }
        if held_up {
            let patient = Self { silent: self.silent / HELD_UP_PATIENCE, ..*self };
            return patient.is_stalled().then_some(self.left);
        }
        if self.is_stalled() {
            return Some(self.left);
        }
        if !self.is_measured() {
            return None;
        }
        let alone = self.rate.time_for(self.left);
        let both = Rate::bits_per_sec(self.rate.as_bits_per_sec().saturating_add(rate.as_bits_per_sec()));
        // The request takes a round trip, and is sent where a window may have to open anew.
        let together = both.time_for(self.left).saturating_add(self.rtt.get().saturating_mul(2));
        if alone < MIN_WAIT || together > alone.mul_f64(WORTH) {
            return None;
        }
        let share = rate.as_bits_per_sec() as f64 / (both.as_bits_per_sec() as f64).max(1.0);
        let part = Bytes::new((self.left.get() as f64 * share) as u64);
        Some(if part < MIN_SHARED { self.left } else { part })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(left: Bytes, mbit: u64, silent: u64) -> Load {
        Load {
            left,
            rate: Rate::mbit(mbit),
            rtt: Rtt::new(Duration::from_millis(200)),
            age: Duration::from_secs(60),
            silent: Duration::from_millis(silent),
            stalls: 0,
        }
    }

    const FAST: Rate = Rate::mbit(900);

    #[test]
    fn all_of_what_has_stalled_and_a_share_of_what_is_much_slower() {
        let again = Load { stalls: 2, ..load(Bytes::mib(9), 100, 6399) };
        let later = Load { silent: again.silent + MIN_WAIT, ..again };
        assert_eq!((again.is_stalled(), later.is_stalled()), (false, true));
        let (all, hundred) = (Bytes::mib(9), Bytes::new(100_000_000));
        let young = |ms| Load { age: Duration::from_millis(ms), ..load(hundred, 100, 0) };
        let crawling = Load { rate: Rate::bits_per_sec(8), ..load(Bytes::new(240), 0, 0) };
        for (load, own, pressed, stolen) in [
            (load(all, 100, 1599), Rate::default(), false, None),
            (load(all, 100, 1600), Rate::default(), false, Some(all)),
            // One that has never brought anything.
            (load(Bytes::new(1), 0, 60_000), FAST, false, Some(Bytes::new(1))),
            (load(Bytes::gib(1), 0, 900), FAST, false, None),
            (load(hundred, 100, 0), FAST, false, Some(Bytes::new(90_000_000))),
            // Its rate is of too short a time before 8 RTTs.
            (young(1599), FAST, false, None),
            (young(1600), FAST, false, Some(Bytes::new(90_000_000))),
            // Done before the second request is answered.
            (load(Bytes::mib(10), 100, 0), FAST, false, None),
            // A few bytes of one that crawls.
            (load(Bytes::new(240), 0, 0), FAST, false, None),
            (crawling, FAST, false, Some(Bytes::new(240))),
            // As fast itself, and the connection is lost by it.
            (load(Bytes::mib(900), 900, 0), FAST, false, None),
            // A held-up load is stolen only after a long silence.
            (load(hundred, 100, 0), FAST, true, None),
            (load(all, 100, 6399), FAST, true, None),
            (load(all, 100, 6400), FAST, true, Some(all)),
        ] {
            assert_eq!(load.worth_stealing(own, pressed), stolen, "{load:?} at {own}, {pressed}");
        }
    }

    #[test]
    fn takeovers_are_few_in_any_period() {
        let mut limit = TakeoverLimit::default();
        let mut taken = Vec::new();
        for ms in (0..60_000).step_by(100) {
            let now = Duration::from_millis(ms);
            if limit.allows(now) {
                limit.count(now);
                taken.push(now);
            }
        }
        let in_period = |from: &Duration| {
            taken.iter().filter(|at| (*from..=*from + TAKEOVER_PERIOD).contains(*at)).count()
        };
        assert!(taken.iter().all(|from| in_period(from) <= MAX_TAKEOVERS), "{taken:?}");
        assert!(taken.len() > 40, "{taken:?}");
    }

    proptest! {
        /// Whatever is seen, never more than there is, and never nothing.
        #[test]
        fn within_the_load(left: u64, rate: u64, own: u64, ms in 0u64..100_000, held_up: bool) {
            let seen = Load { left: Bytes::new(left), rate: Rate::bits_per_sec(rate), ..load(Bytes::ZERO, 0, ms) };
            if let Some(part) = seen.worth_stealing(Rate::bits_per_sec(own), held_up) {
                prop_assert!(part > Bytes::ZERO && part <= seen.left);
            }
        }
    }
}
