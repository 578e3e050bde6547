//! Packet trains: measures the bottleneck's rate by the dispersion of bursts.

use std::time::Duration;

use crate::units::{Bytes, Rate};

/// Finds bursts in the delivered bytes, and the rate of each.
///
/// In slow start a window travels as one burst. The bottleneck forwards it at its own rate, and the acknowledgements return
/// with that spacing: a burst's bytes over its duration are the bottleneck's rate, long before the window reaches the BDP.
#[derive(Debug, Clone, Default)]
pub(super) struct PacketTrains {
    burst: Option<Burst>,
    delivered: Bytes,
    /// The rate of the previous burst that could be measured.
    before: Option<Rate>,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    first: (Duration, Bytes),
    last: (Duration, Bytes),
    /// The most bytes between two observations: late observations, GRO and compressed acknowledgements all show in it.
    step: Bytes,
}

/// A pause of one part in this many of the RTT ends a burst.
const GAP_RTT_PARTS: u32 = 8;

impl PacketTrains {
    /// Observes the bytes delivered by `now`; returns the bottleneck's rate once two bursts in a row agree on it.
    ///
    /// The error of a burst's rate is that of its largest step, and must be within `uncertainty`; two such rates differ by no
    /// more than twice that.
    pub(super) fn observe(
        &mut self,
        delivered: Bytes,
        rtt: Duration,
        uncertainty: f64,
        now: Duration,
    ) -> Option<Rate> {
        let step = delivered - std::mem::replace(&mut self.delivered, delivered);
        let ended = self.burst.take_if(|burst| now.saturating_sub(burst.last.0) >= rtt / GAP_RTT_PARTS);
        if step > Bytes::ZERO {
            let news = (now, delivered);
            // The bytes of the first observation have no duration.
            let burst = self.burst.get_or_insert(Burst { first: news, last: news, step: Bytes::ZERO });
            if news != burst.first {
                (burst.last, burst.step) = (news, burst.step.max(step));
            }
        }
        let rate = ended?.rate(uncertainty)?;
        let before = self.before.replace(rate)?;
        let agree = before.min(rate) >= before.max(rate).scaled(1.0 - 2.0 * uncertainty);
        // Their mean: one may have met other traffic.
        agree.then(|| before.scaled(0.5) + rate.scaled(0.5))
    }
}

impl Burst {
    fn rate(self, uncertainty: f64) -> Option<Rate> {
        let size = self.last.1 - self.first.1;
        let is_certain = size > Bytes::ZERO && self.step.get() as f64 <= uncertainty * size.get() as f64;
        is_certain.then(|| Rate::over(size, self.last.0 - self.first.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Observes windows that double from 14 kB, one per RTT, every `tick` µs; `held` is the part of the 12th window's time
    /// for which its acknowledgements are held up.
    fn measured(mbit: f64, tick: u64, held: f64) -> Option<f64> {
        let mut trains = PacketTrains::default();
        (0..2_000_000 / tick).find_map(|i| {
            let now = Duration::from_micros(i * tick);
            let (round, into) = (now.as_micros() / RTT.as_micros(), now.as_micros() % RTT.as_micros());
            let window = 14_480.0 * f64::from(1_u32 << round.min(12));
            let time = window * 8.0 / mbit * if round == 10 { 1.0 + held } else { 1.0 };
            let delivered = window - 14_480.0 + window * (into as f64 / time).min(1.0);
            let rate = trains.observe(Bytes::new(delivered as u64), RTT, 0.15, now)?;
            Some(rate.as_bits_per_sec() as f64 / 1e6)
        })
    }

    #[test]
    fn two_long_bursts_measure_the_bottlenecks_rate() {
        for mbit in [100.0, 1000.0, 8000.0] {
            let rate = measured(mbit, 200, 0.0).unwrap_or_default();
            assert!((0.85..1.15).contains(&(rate / mbit)), "{rate} of {mbit} Mbit/s");
        }
    }

    #[test]
    fn rare_observations_measure_nothing_on_a_fast_path() {
        assert_eq!(measured(40_000.0, 5_000, 0.0), None);
    }

    #[test]
    fn burst_that_was_held_up_is_not_believed() {
        let rate = measured(8000.0, 200, 3.0).unwrap_or(8000.0);
        assert!((0.85..1.15).contains(&(rate / 8000.0)), "{rate}");
    }

    #[test]
    fn steady_flow_is_not_a_burst() {
        let mut trains = PacketTrains::default();
        for i in 0..20_000_u64 {
            let rate = trains.observe(Bytes::new(i * 25_000), RTT, 0.15, Duration::from_micros(200 * i));
            assert_eq!(rate, None);
        }
    }
}
