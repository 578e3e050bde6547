//! Packet trains: measures the bottleneck's rate by the dispersion of bursts.

use std::time::Duration;

use crate::units::{Bytes, Rate};

/// Finds bursts in the delivered bytes, and the rate of each.
///
/// In slow start a window travels as one burst. The bottleneck forwards it at its own rate, and the
/// acknowledgements return with the packets' spacing: a burst's bytes over its duration are the
/// bottleneck's rate, long before the window reaches the BDP.
#[derive(Debug, Clone, Default)]
pub(super) struct PacketTrains {
    burst: Option<Burst>,
    delivered: Bytes,
    /// The previous burst.
    before: Option<PacketTrain>,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    first: (Duration, Bytes),
    last: (Duration, Bytes),
}

/// The highest rate that is measured: bursts on a faster path are too short to be timed, and its queues are deeper.
pub(super) const MAX_TRAIN_RATE: Rate = Rate::bits_per_sec(3_000_000_000);
/// A pause of this length ends a burst.
const BURST_GAP: Duration = Duration::from_millis(4);
/// A shorter burst measures the interval of observation rather than the path, unless it is large.
const MIN_TRAIN_TIME: Duration = Duration::from_micros(2500);
/// A burst of this size is large,
const LARGE_TRAIN: Bytes = Bytes::mib(2);
/// where it lasts at least this long.
const MIN_LARGE_TRAIN_TIME: Duration = Duration::from_millis(1);
/// Two bursts in a row measure the bottleneck where the lower of their rates is at least this share of the higher.
///
/// A late observation lengthens one burst by milliseconds. On a path of 10 Gbit/s that divides the rate of a burst of the first
/// windows by ten; two bursts at 1 Gbit/s, timed every 0.2 ms, differ by a fifth.
const AGREEMENT: f64 = 0.5;

/// A complete burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketTrain {
    /// Bytes over duration.
    pub(super) rate: Rate,
    /// The size of the burst after its first observation.
    pub(super) size: Bytes,
    /// The duration of the burst.
    pub(super) time: Duration,
    /// Whether the previous burst had about this rate ([`AGREEMENT`]).
    pub(super) agrees: bool,
}

impl PacketTrains {
    /// Observes the bytes delivered by `now`; returns a complete burst that measures the bottleneck's rate.
    pub(super) fn observe(&mut self, delivered: Bytes, now: Duration) -> Option<PacketTrain> {
        self.ended(delivered, now).filter(PacketTrain::is_measurable)
    }

    /// Observes the bytes delivered by `now`; returns every complete burst.
    pub(super) fn ended(&mut self, delivered: Bytes, now: Duration) -> Option<PacketTrain> {
        let news = delivered != self.delivered;
        self.delivered = delivered;
        let ended = self.burst.take_if(|burst| now.saturating_sub(burst.last.0) >= BURST_GAP);
        match &mut self.burst {
            Some(burst) if news => burst.last = (now, delivered),
            // The bytes of the first observation have no duration.
            None if news => self.burst = Some(Burst { first: (now, delivered), last: (now, delivered) }),
            _ => {}
        }
        let train = ended?.train(self.before.as_ref());
        self.before = Some(train);
        Some(train)
    }
}

impl Burst {
    fn train(self, before: Option<&PacketTrain>) -> PacketTrain {
        let (time, size) = (self.last.0 - self.first.0, self.last.1 - self.first.1);
        let rate = Rate::over(size, time);
        let agrees = before.is_some_and(|before| before.has_about(rate));
        PacketTrain { rate, size, time, agrees }
    }
}

impl PacketTrain {
    /// Returns whether the burst is long enough to measure the bottleneck's rate.
    pub(super) fn is_measurable(&self) -> bool {
        self.agrees && (self.time >= MIN_TRAIN_TIME || self.is_large())
    }

    /// Returns whether the burst is so large that only the bottleneck can have delayed it.
    pub(super) fn is_large(&self) -> bool {
        self.size >= LARGE_TRAIN && self.time >= MIN_LARGE_TRAIN_TIME
    }

    fn has_about(&self, rate: Rate) -> bool {
        let (low, high) = (self.rate.min(rate), self.rate.max(rate));
        low > Rate::default() && low >= high.scaled(AGREEMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    /// Observes bursts of `clump` bytes at `mbit`, one per 100 ms, every 0.5 ms.
    fn rates(clump: u64, mbit: u64) -> Vec<Rate> {
        let mut trains = PacketTrains::default();
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
    fn long_burst_measures_the_bottlenecks_rate() {
        for mbit in [10, 100, 1000] {
            let rates = rates(mbit * 1000, mbit);
            assert!(rates.len() >= 7, "{rates:?}");
            for rate in rates {
                let share = rate.as_bits_per_sec() as f64 / (mbit * MBIT) as f64;
                assert!((0.9..1.1).contains(&share), "{rate} of {mbit} Mbit/s");
            }
        }
    }

    /// Bursts last 0.3 ms; the acknowledgements of one are delayed, and it seems to last 3 ms.
    #[test]
    fn burst_that_was_held_up_measures_nothing() {
        let mut trains = PacketTrains::default();
        for t in 0..20_000_u64 {
            let (round, into) = (t / 1000, t % 1000);
            let lasts = if round == 7 { 30 } else { 3 };
            let delivered = Bytes::new(round * 300_000 + 300_000 * into.min(lasts) / lasts);
            assert_eq!(trains.observe(delivered, Duration::from_micros(100 * t)), None, "{t}");
        }
    }

    #[test]
    fn short_burst_measures_nothing() {
        assert_eq!(rates(100_000, 1000), []);
    }

    #[test]
    fn steady_flow_is_not_a_burst() {
        assert_eq!(rates(12_500_000, 1000), []);
    }
}
