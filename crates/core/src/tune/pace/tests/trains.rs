//! The bottleneck's rate, measured by bursts.

use super::super::train::PacketTrains;
use super::*;

const RTT: Duration = Duration::from_millis(100);

/// Observes windows that double from 14 kB, one per RTT, every `tick` µs; `held` is the part of the
/// 11th window's time for which its acknowledgements are held up.
fn measured(mbit: f64, tick: u64, held: f64) -> Option<f64> {
    let mut trains = PacketTrains::default();
    (0..2_000_000 / tick).find_map(|i| {
        let now = Duration::from_micros(i * tick);
        let (round, into) = (now.as_micros() / RTT.as_micros(), now.as_micros() % RTT.as_micros());
        let window = 14_480.0 * f64::from(1_u32 << round.min(12));
        let time = window * 8.0 / mbit * if round == 10 { 1.0 + held } else { 1.0 };
        let delivered = window - 14_480.0 + window * (into as f64 / time).min(1.0);
        let rate = trains.observe(Bytes::new(delivered as u64), RTT, now)?;
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

/// Observes bursts of 1,000 bytes each µs for 40 ms, whose acknowledgements of `held` (ms within
/// the burst) arrive at its end.
fn with_acks_held(held: std::ops::Range<u64>) -> Option<Rate> {
    let mut trains = PacketTrains::default();
    (0..2_000).find_map(|i| {
        let now = Duration::from_micros(i * 200);
        let (round, into) = (i * 200 / 100_000, i * 200 % 100_000);
        let arrived =
            if (held.start * 1000..held.end * 1000).contains(&into) { held.start * 1000 } else { into };
        let delivered = 1000 * (40_000 * round + arrived.min(40_000));
        trains.observe(Bytes::new(delivered), RTT, now)
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
fn bursts_that_were_held_up_or_rarely_observed_are_not_believed_and_a_steady_flow_is_none() {
    assert_eq!(with_acks_held(33..44), None);
    assert_eq!(measured(40_000.0, 5_000, 0.0), None);
    let rate = measured(8000.0, 200, 3.0).unwrap_or(8000.0);
    assert!((0.85..1.15).contains(&(rate / 8000.0)), "{rate}");
    // A steady flow.
    let mut trains = PacketTrains::default();
    for i in 0..20_000_u64 {
        let rate = trains.observe(Bytes::new(i * 25_000), RTT, Duration::from_micros(200 * i));
        assert_eq!(rate, None);
    }
}
