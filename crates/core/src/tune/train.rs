//! Packet trains: the bottleneck's rate from how far it pulls a burst apart.

use std::time::Duration;

use crate::units::{Bytes, Rate};

/// Finds bursts in what is delivered, and the rate at which each came.
///
/// In slow start a window travels as one clump. The bottleneck passes it on at its own rate, and the
/// acknowledgements come back spaced as the packets were: a burst's bytes over its duration are the
/// bottleneck's rate, long before the window reaches the BDP.
#[derive(Debug, Clone, Default)]
pub(super) struct Trains {
    burst: Option<Burst>,
    delivered: Bytes,
    /// The burst that ended before.
    before: Option<Train>,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    first: (Duration, Bytes),
    last: (Duration, Bytes),
}

/// A faster path's bursts are too short to be timed, and its queues are deeper than a switch's.
pub(super) const FASTEST: Rate = Rate::bits_per_sec(3_000_000_000);
/// Nothing for so long ends a burst.
const GAP: Duration = Duration::from_millis(4);
/// A shorter burst tells more of who looks at it than of the path,
const SHORTEST: Duration = Duration::from_micros(2500);
/// unless it is this large,
const LARGE: Bytes = Bytes::mib(2);
/// and not as short as this.
const INSTANT: Duration = Duration::from_millis(1);
/// A burst that takes longer by this share of how much larger it is than the one before is held back by a bottleneck.
const IN_PROPORTION: f64 = 0.75;
/// It is compared with one that was smaller by this factor at least.
const GROWN: f64 = 1.4;

/// A burst that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Train {
    /// The rate at which it came.
    pub(super) rate: Rate,
    /// How much of it there was.
    pub(super) size: Bytes,
    /// How long it took.
    pub(super) time: Duration,
    /// Whether it took longer than the one before as much as it was larger: a bottleneck's bursts do, and those that somebody was late
    /// to look at do not.
    pub(super) proven: bool,
}

impl Trains {
    /// Observes what has been delivered by `now`; returns a burst that has ended and was long enough to tell.
    pub(super) fn observe(&mut self, delivered: Bytes, now: Duration) -> Option<Train> {
        self.ended(delivered, now).filter(Train::is_telling)
    }

    /// Observes the same; returns every burst that has ended.
    pub(super) fn ended(&mut self, delivered: Bytes, now: Duration) -> Option<Train> {
        let news = delivered != self.delivered;
        self.delivered = delivered;
        let ended = self.burst.take_if(|burst| now.saturating_sub(burst.last.0) >= GAP);
        match &mut self.burst {
            Some(burst) if news => burst.last = (now, delivered),
            // What came before the first look at it has no duration.
            None if news => self.burst = Some(Burst { first: (now, delivered), last: (now, delivered) }),
            _ => {}
        }
        let train = ended?.train(self.before.as_ref());
        self.before = Some(train);
        Some(train)
    }
}

impl Burst {
    fn train(self, before: Option<&Train>) -> Train {
        let (time, size) = (self.last.0 - self.first.0, self.last.1 - self.first.1);
        let train = Train { rate: Rate::over(size, time), size, time, proven: false };
        Train { proven: before.is_some_and(|before| train.is_in_proportion(before)), ..train }
    }
}

impl Train {
    /// Returns whether it was long enough to tell the bottleneck's rate, if one sender sent it.
    pub(super) fn is_telling(&self) -> bool {
        self.time >= SHORTEST || self.is_large()
    }

    /// Returns whether it was so large that nothing but the bottleneck was as slow.
    pub(super) fn is_large(&self) -> bool {
        self.size >= LARGE && self.time >= INSTANT
    }

    fn is_in_proportion(&self, before: &Self) -> bool {
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let larger = ratio(self.size.get() as f64, before.size.get() as f64);
        let longer = ratio(self.time.as_secs_f64(), before.time.as_secs_f64());
        larger >= GROWN && longer - 1.0 >= IN_PROPORTION * (larger - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    /// Looks twice a millisecond at clumps of `clump` bytes that come at `mbit`, every 100 ms.
    fn rates(clump: u64, mbit: u64) -> Vec<Rate> {
        let mut trains = Trains::default();
        let at = |half_ms: u64| {
            let (round, into) = (half_ms / 200, half_ms % 200);
            Bytes::new(round * clump + clump.min(into * mbit * MBIT / 8 / 2000))
        };
        (0..2000)
            .filter_map(|t| trains.observe(at(t), Duration::from_micros(500 * t)))
            .map(|train| train.rate)
            .collect()
    }

    #[test]
    fn a_long_burst_tells_the_bottlenecks_rate() {
        for mbit in [10, 100, 1000] {
            let rates = rates(mbit * 1000, mbit);
            assert!(rates.len() >= 7, "{rates:?}");
            for rate in rates {
                let share = rate.as_bits_per_sec() as f64 / (mbit * MBIT) as f64;
                assert!((0.9..1.1).contains(&share), "{rate} of {mbit} Mbit/s");
            }
        }
    }

    #[test]
    fn a_short_burst_tells_nothing() {
        assert_eq!(rates(100_000, 1000), []);
    }

    #[test]
    fn a_steady_flow_is_no_burst() {
        assert_eq!(rates(12_500_000, 1000), []);
    }
}
