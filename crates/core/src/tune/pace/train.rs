//! Packet trains: measures the bottleneck's rate by the dispersion of bursts.

use std::time::Duration;

use super::Params;
use crate::units::{Bytes, Rate};

/// Finds bursts in the delivered bytes, and the rate of each.
///
/// In slow start a window travels as one burst. The bottleneck forwards it at its own rate, and the acknowledgements return
/// with that spacing: a burst's bytes over its duration are the bottleneck's rate, long before the window reaches the BDP.
#[derive(Debug, Clone, Default)]
pub(super) struct PacketTrains {
    burst: Option<Burst>,
    /// The previous observation.
    observed: Duration,
    delivered: Bytes,
    /// The rate of the previous burst that could be measured.
    before: Option<Rate>,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    first: (Duration, Bytes),
    last: (Duration, Bytes),
    /// How long before its observation each of the two may have arrived. Of the difference the larger one is the error.
    early: (Duration, Duration),
}

impl PacketTrains {
    /// Observes the bytes delivered by `now`; returns the bottleneck's rate once two bursts in a row agree on it.
    ///
    /// The error of a burst's rate is that of its ends: what is late in between lengthens nothing. It must be within
    /// `Params::uncertainty`; two such rates differ by no more than twice that.
    pub(super) fn observe(
        &mut self,
        params: &Params,
        delivered: Bytes,
        rtt: Duration,
        now: Duration,
    ) -> Option<Rate> {
        let step = delivered - std::mem::replace(&mut self.delivered, delivered);
        let interval = now.saturating_sub(std::mem::replace(&mut self.observed, now));
        let gap = rtt.mul_f64(params.gap);
        let ended = self.burst.take_if(|burst| now.saturating_sub(burst.last.0) >= gap);
        if step > Bytes::ZERO {
            let news = (now, delivered);
            match &mut self.burst {
                // The bytes of the first observation have no duration.
                None => self.burst = Some(Burst { first: news, last: news, early: (interval, interval) }),
                Some(burst) => {
                    // A host that is late, GRO and delayed acknowledgements all hold back the last bytes.
                    burst.early.1 = now.saturating_sub(burst.last.0);
                    burst.last = news;
                }
            }
        }
        let rate = ended?.rate(params.uncertainty)?;
        let before = self.before.replace(rate)?;
        let agree = before.min(rate) >= before.max(rate).scaled(1.0 - 2.0 * params.uncertainty);
        // Their mean: one may have met other traffic.
        agree.then(|| before.scaled(0.5) + rate.scaled(0.5))
    }
}

impl Burst {
    fn rate(self, uncertainty: f64) -> Option<Rate> {
        let time = self.last.0 - self.first.0;
        let is_certain = !time.is_zero() && self.early.0.max(self.early.1) <= time.mul_f64(uncertainty);
        is_certain.then(|| Rate::over(self.last.1 - self.first.1, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Observes windows that double from 14 kB, one per RTT, every `tick` µs; `held` is the part of the 11th window's time
    /// for which its acknowledgements are held up.
    fn measured(mbit: f64, tick: u64, held: f64) -> Option<f64> {
        let mut trains = PacketTrains::default();
        let params = Params::default();
        (0..2_000_000 / tick).find_map(|i| {
            let now = Duration::from_micros(i * tick);
            let (round, into) = (now.as_micros() / RTT.as_micros(), now.as_micros() % RTT.as_micros());
            let window = 14_480.0 * f64::from(1_u32 << round.min(12));
            let time = window * 8.0 / mbit * if round == 10 { 1.0 + held } else { 1.0 };
            let delivered = window - 14_480.0 + window * (into as f64 / time).min(1.0);
            let rate = trains.observe(&params, Bytes::new(delivered as u64), RTT, now)?;
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

    /// Observes bursts of 1,000 bytes each µs for 40 ms, whose acknowledgements of `held` (ms within the burst) arrive at its end.
    fn with_acks_held(held: std::ops::Range<u64>) -> Option<Rate> {
        let mut trains = PacketTrains::default();
        (0..2_000).find_map(|i| {
            let now = Duration::from_micros(i * 200);
            let (round, into) = (i * 200 / 100_000, i * 200 % 100_000);
            let arrived =
                if (held.start * 1000..held.end * 1000).contains(&into) { held.start * 1000 } else { into };
            let delivered = 1000 * (40_000 * round + arrived.min(40_000));
            trains.observe(&Params::default(), Bytes::new(delivered), RTT, now)
        })
    }

    #[test]
    fn acknowledgements_delayed_within_a_burst_cost_no_certainty() {
        for held in [0..0, 5..13, 15..25, 27..35] {
            let rate = with_acks_held(held.clone()).map(|rate| rate.as_bits_per_sec() as f64 / 8e9);
            assert!(rate.is_some_and(|rate| (0.99..1.01).contains(&rate)), "{held:?} ms: {rate:?}");
        }
    }

    #[test]
    fn burst_whose_end_was_delayed_is_not_believed() {
        assert_eq!(with_acks_held(33..44), None);
    }

    #[test]
    fn steady_flow_is_not_a_burst() {
        let mut trains = PacketTrains::default();
        for i in 0..20_000_u64 {
            let rate = trains.observe(
                &Params::default(),
                Bytes::new(i * 25_000),
                RTT,
                Duration::from_micros(200 * i),
            );
            assert_eq!(rate, None);
        }
    }
}
