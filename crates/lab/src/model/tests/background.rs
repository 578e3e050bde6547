//! Background traffic: rates, randomness, and its share of queue and line.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use proptest::prelude::*;

use super::micros;
use crate::model::*;

const PACKET: Bytes = Bytes::new(1500);
const GBIT: Rate = Rate::bits_per_sec(1_000_000_000);

fn steps(steps: &[(u64, u64)]) -> Vec<(Duration, Rate)> {
    let step = |(secs, mbits): &_| (Duration::from_secs(*secs), Rate::bits_per_sec(mbits * 1_000_000));
    steps.iter().map(step).collect()
}

/// A shared bottleneck of 1 Gbit/s with a queue of 1 MB.
fn shared(background: &[(u64, u64)], seed: u64) -> Link {
    let background = Background::new(steps(background), PACKET, seed);
    Link::new().then(RatedQueue::shared(GBIT, QueueLimit::Bytes(Bytes::new(1_000_000)), background))
}

/// Returns whether `seen` is within four standard deviations of a Poisson mean.
fn is_near(seen: u64, mean: f64) -> bool {
    (seen as f64 - mean).abs() <= 4.0 * mean.sqrt() + 1.0
}

#[test]
fn each_step_has_its_rate_and_time_counts_from_the_first_packet() {
    let mut link = shared(&[(1, 120), (2, 600), (3, 0)], 1);
    let mut offered_by = |millis: u64| {
        // The first packet arrives ten seconds after the link's start.
        link.pass(micros((10_000 + millis) * 1000), PACKET);
        link.background().offered
    };
    assert_eq!((offered_by(0), offered_by(999)), (0, 0));
    // A packet has 12,000 bits.
    let (first, second, third) = (offered_by(2000), offered_by(3000), offered_by(9000));
    assert!(is_near(first, 10_000.0), "{first}");
    assert!(is_near(second - first, 50_000.0), "{second} after {first}");
    assert_eq!(third, second, "nothing more");
}

#[test]
fn arrivals_are_those_of_a_poisson_process() {
    let mut link = shared(&[(0, 120)], 2);
    let mut before = 0;
    let counts: Vec<f64> = (1..=4000)
        .map(|step| {
            link.pass(micros(step * 1000), Bytes::new(1));
            let offered = link.background().offered;
            (offered - std::mem::replace(&mut before, offered)) as f64
        })
        .skip(1)
        .collect();
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    assert!((mean - 10.0).abs() < 0.2, "10 a millisecond: {mean}");
    // Variance equals the mean only for a Poisson process.
    assert!((variance / mean - 1.0).abs() < 0.1, "{variance} / {mean}");
}

#[test]
fn load_up_to_remaining_capacity_passes_without_loss() {
    for (mbits, is_lost) in [(450, false), (550, true)] {
        let mut link = shared(&[(0, 500)], 3);
        let gap = PACKET.get() * 8000 / mbits;
        let lost = (0..400_000_u64)
            .filter(|number| matches!(link.pass(Time::from_nanos(number * gap), PACKET), Fate::Dropped(_)))
            .count();
        assert_eq!((lost > 0, link.background().lost > 0), (is_lost, is_lost), "{mbits} Mbit/s: {lost} lost");
    }
}

#[test]
fn long_idle_time_is_skipped_and_counted() {
    let mut link = shared(&[(0, 900), (100, 0), (200, 120)], 4);
    link.pass(Time::START, PACKET);
    // One year: simulating each packet would take hours.
    let year = 365 * 86_400;
    let now = micros(year * 1_000_000);
    let fate = link.pass(now, PACKET);
    assert!(matches!(fate, Fate::Leaves(at) if at.since(now) < Duration::from_millis(8)), "{fate:?}");
    let BackgroundCounts { offered, lost, bytes } = link.background();
    let mean = 75_000.0 * 100.0 + 10_000.0 * (year - 200) as f64;
    assert!(is_near(offered, mean), "{offered}, not {mean}");
    assert_eq!((lost, bytes), (0, PACKET * offered));
}

#[test]
fn full_queue_is_simulated_through_a_long_pause() {
    // 10 s of queue at 1 Mbit/s, which the background alone keeps from draining for another 10 s.
    let queue = QueueLimit::Bytes(Bytes::new(1_250_000));
    let background = Background::new(vec![(Duration::ZERO, Rate::bits_per_sec(500_000))], PACKET, 5);
    let mut limit = RatedQueue::shared(Rate::bits_per_sec(1_000_000), queue, background);
    let burst = (0..1000).filter(|_| matches!(limit.pass(Time::START, PACKET), Fate::Leaves(_))).count();
    assert_eq!(burst, 833);
    let at = micros(15_000_000);
    let Fate::Leaves(out) = limit.pass(at, PACKET) else { panic!("the queue has drained") };
    let waits = out.since(at).as_secs_f64();
    assert!((1.5..3.5).contains(&waits), "{waits} s; 2.5 s are the mean");
}

proptest! {
    /// Invariants of host and background packets together: causality, order, rate, queue limit and
    /// conservation.
    #[test]
    fn background_shares_queue_and_rate(
        arrivals in prop::collection::vec((0_u64..100_000, 40_u64..1500), 1..300),
        kbits in 1_000_u64..2_000_000,
        limit in 3_000_u64..60_000,
        share in prop_oneof![Just(0.0), 0.0..1.0_f64],
        seed: u64,
    ) {
        let (rate, limit) = (Rate::bits_per_sec(kbits * 1000), Bytes::new(limit));
        let run = || {
            let background = Background::new(vec![(Duration::ZERO, rate.scaled(share))], PACKET, seed);
            let mut limit = RatedQueue::shared(rate, QueueLimit::Bytes(limit), background);
            let mut now = Time::START;
            let fates: Vec<_> = arrivals
                .iter()
                .map(|(gap, size)| {
                    now = now + Duration::from_nanos(*gap);
                    (now, *size, limit.pass(now, Bytes::new(*size)))
                })
                .collect();
            (fates, limit.background().unwrap())
        };
        let (fates, counts) = run();
        let (mut last, mut sent) = (Time::START, 0);
        for (now, size, fate) in &fates {
            if let Fate::Leaves(at) = fate {
                prop_assert!(at > now && *at > last, "order");
                prop_assert!(at.since(*now) <= rate.time_for(limit) + Duration::from_nanos(2), "the limit");
                (last, sent) = (*at, sent + size);
            }
        }
        prop_assert!(counts.lost <= counts.offered);
        prop_assert_eq!(counts.bytes, PACKET * counts.offered);
        // All admitted packets have been sent once the final queue has drained.
        let all = Bytes::new(sent + PACKET.get() * (counts.offered - counts.lost));
        let end = fates[fates.len() - 1].0 + rate.time_for(limit);
        prop_assert!(rate.time_for(all) <= end.since(Time::START) + Duration::from_nanos(2), "the rate");
        prop_assert_eq!(run(), (fates, counts), "one seed, one result");
    }
}
