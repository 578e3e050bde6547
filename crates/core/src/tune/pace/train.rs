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
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    first: (Duration, Bytes),
    last: (Duration, Bytes),
}

/// Nothing for so long ends a burst.
const GAP: Duration = Duration::from_millis(4);
/// A shorter burst tells more of who looks at it than of the path,
const SHORTEST: Duration = Duration::from_millis(3);
/// unless it is this large,
const LARGE: Bytes = Bytes::mib(2);
/// and not as short as this.
const INSTANT: Duration = Duration::from_millis(1);

impl Trains {
    /// Observes what has been delivered by `now`; returns the rate of a burst that has ended and was long enough.
    pub(super) fn observe(&mut self, delivered: Bytes, now: Duration) -> Option<Rate> {
        let Some(burst) = &mut self.burst else {
            self.burst = (delivered > Bytes::ZERO).then(|| Burst::new(delivered, now));
            return None;
        };
        let since = now.saturating_sub(burst.last.0);
        if delivered == burst.last.1 {
            return None;
        }
        if since < GAP {
            burst.last = (now, delivered);
            return None;
        }
        std::mem::replace(burst, Burst::new(delivered, now)).rate()
    }
}

impl Burst {
    /// Begins with the first bytes seen: what came before that look has no duration.
    const fn new(delivered: Bytes, now: Duration) -> Self {
        Self { first: (now, delivered), last: (now, delivered) }
    }

    fn rate(self) -> Option<Rate> {
        let (time, bytes) = (self.last.0 - self.first.0, self.last.1 - self.first.1);
        let telling = time >= SHORTEST || (time >= INSTANT && bytes >= LARGE);
        telling.then(|| Rate::over(bytes, time))
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
        (0..2000).filter_map(|t| trains.observe(at(t), Duration::from_micros(500 * t))).collect()
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
