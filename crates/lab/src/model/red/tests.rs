//! RED against published results.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{DropCause, Fate, Link, Node, RatedQueue};

const MTU: Bytes = Bytes::new(1500);
/// Rate at which a packet of the MTU takes 1 ms.
const RATE: Rate = Rate::bits_per_sec(12_000_000);
const ENDLESS: QueueLimit = QueueLimit::Packets(u64::MAX);

fn red(parameters: RedParameters, limit: QueueLimit) -> Red {
    Red::new(parameters, limit, RATE, MTU, 7)
}

/// Parameters with which the average equals the current queue.
fn at_once() -> RedParameters {
    RedParameters { w_q: 1.0, ..RedParameters::default() }
}

fn queued(packets: u64) -> Backlog {
    Backlog { packets, bytes: MTU * packets, idle: Duration::ZERO }
}

/// Counts the gaps between drops by length, at a queue of `packets`.
fn gaps(red: &mut Red, packets: u64, arrivals: u64) -> Vec<u64> {
    let (mut gaps, mut gap) = (Vec::new(), 0);
    for _ in 0..arrivals {
        gap += 1;
        if !red.admits(Time::START, queued(packets), MTU) {
            gaps.resize(gaps.len().max(gap + 1), 0);
            gaps[gap] += 1;
            gap = 0;
        }
    }
    gaps
}

/// Even packets at 1.5 times the rate: a third must be dropped, 2 p_b / (1 + p_b) with uniform
/// gaps, which needs an average of 16.7 packets.
#[test]
fn overload_settles_at_the_average_of_the_curve() {
    let mut node = RatedQueue::of_rate(RATE, red(RedParameters::default(), QueueLimit::Packets(100)));
    let pass = |number: u64| {
        let at = Time::from_nanos(number * 666_667);
        let Fate::Leaves(out) = node.pass(at, MTU) else { return None };
        Some(out.since(at).as_secs_f64() * 1000.0)
    };
    let waits: Vec<_> = (0..60_000).map(pass).skip(20_000).flatten().collect();
    let (taken, mean) = (waits.len() as f64 / 40_000.0, waits.iter().sum::<f64>() / waits.len() as f64);
    assert!((0.66..0.67).contains(&taken) && (15.0..20.0).contains(&mean), "{taken} {mean}");
}

/// p_b rises to `max_p` between the thresholds, and with `gentle` to 1 at twice `max_th`; gaps are
/// uniform.
#[test]
fn drops_follow_the_curve_and_are_evenly_spaced() {
    let gentle = |share: f64| 0.1 + 0.9 * share;
    for (packets, p_b) in [
        [(6, 0.01), (10, 0.05), (14, 0.09), (15, 0.1)],
        [(20, gentle(1.0 / 3.0)), (27, gentle(0.8)), (30, 1.0), (1000, 1.0)],
    ]
    .concat()
    {
        let seen = gaps(&mut red(at_once(), ENDLESS), packets, 200_000);
        let drops = seen.iter().sum::<u64>() as f64;
        assert!(drops > 1000.0, "{packets} packets: {drops} drops");
        for (gap, count) in seen.iter().enumerate().skip(1) {
            // 1/p_b gaps of equal probability; the last one has the remainder.
            let share = (1.0 - (gap - 1) as f64 * p_b).clamp(0.0, p_b);
            let slack = 4.5 * (drops * share * (1.0 - share)).sqrt() + 1.0;
            let difference = (*count as f64 - drops * share).abs();
            assert!(difference <= slack, "{packets} packets, gap {gap}: {count} of {drops}, not {share}");
        }
    }
}

#[test]
fn without_gentle_drops_none_below_min_th_and_all_above_max_th() {
    for (gentle, packets, drops) in
        [(true, 0, 0), (true, 4, 0), (true, 5, 0), (false, 4, 0), (false, 15, 1000), (false, 29, 1000)]
    {
        let mut red = red(RedParameters { gentle, ..at_once() }, ENDLESS);
        let dropped = (0..1000).filter(|_| !red.admits(Time::START, queued(packets), MTU)).count();
        assert_eq!(dropped, drops, "{packets} packets, gentle {gentle}");
    }
}

/// The paper's bound of w_q: with 0.001, a burst of 100 packets raises the average to 4.88.
#[test]
fn a_burst_moves_the_average_as_published() {
    let mut red = red(RedParameters { w_q: 0.001, ..RedParameters::default() }, ENDLESS);
    for packets in 1..=100 {
        assert!(red.admits(Time::START, queued(packets), MTU));
    }
    assert!((red.average - 4.88).abs() < 0.01, "{}", red.average);
}

/// The average decays as if the line had sent packets of the MTU: 346 packets at a weight of 0.002
/// halve it.
#[test]
fn average_decays_while_queue_is_empty() {
    for limit in [ENDLESS, QueueLimit::Bytes(MTU * 1000)] {
        let mut red = red(RedParameters::default(), limit);
        red.average = 14.0;
        for (millis, average, slack) in [(0, 14.0, 1e-9), (346, 7.0, 0.01), (1_000_000_000, 0.0, 1e-9)] {
            let idle = Backlog { idle: Duration::from_millis(millis), ..Backlog::default() };
            assert!(red.admits(Time::START, idle, MTU), "{millis} ms");
            assert!((red.average - average).abs() < slack, "{millis} ms: {}", red.average);
        }
    }
}

/// A queue in bytes drops by packet size, a queue in packets does not.
#[test]
fn queue_in_bytes_drops_small_packets_less() {
    let dropped = |limit| {
        let mut red = red(at_once(), limit);
        let mut dropped = [0_u32; 2];
        for number in 0..200_000_usize {
            let size = [MTU, Bytes::new(150)][number % 2];
            // The backlog is 8 packets of the largest size in both units.
            dropped[number % 2] += u32::from(!red.admits(Time::START, queued(8), size));
        }
        f64::from(dropped[0]) / f64::from(dropped[1])
    };
    let (in_packets, in_bytes) = (dropped(ENDLESS), dropped(QueueLimit::Bytes(MTU * 1000)));
    assert!((0.9..1.1).contains(&in_packets), "{in_packets}");
    assert!((9.0..11.0).contains(&in_bytes), "{in_bytes}");
}

proptest! {
    /// Invariants: order, limit, no drop while the queue never exceeded `min_th`, one result per
    /// seed.
    #[test]
    fn invariants_hold_for_any_arrivals(
        arrivals in prop::collection::vec((0_u64..3_000_000, 40_u64..1500), 1..400),
        (min_th, more) in (0.0_f64..20.0, 0.1_f64..40.0),
        (max_p, w_q) in (0.0_f64..=1.0, 0.001_f64..=1.0),
        gentle: bool,
        in_bytes: bool,
        limit in 1_u64..60,
        seed: u64,
    ) {
        let parameters = RedParameters { min_th, max_th: min_th + more, max_p, w_q, gentle };
        let limit = if in_bytes { QueueLimit::Bytes(MTU * limit) } else { QueueLimit::Packets(limit) };
        let run = || {
            let mut link = Link::new().then(RatedQueue::of_rate(RATE, Red::new(parameters, limit, RATE, MTU, seed)));
            let mut now = Time::START;
            let fates = arrivals.iter().map(|(gap, size)| {
                now = now + Duration::from_nanos(*gap);
                (now, link.pass(now, Bytes::new(*size)))
            });
            fates.collect::<Vec<_>>()
        };
        let fates = run();
        let mut waiting: Vec<(Time, u64)> = Vec::new();
        let (mut last, mut longest) = (Time::START, 0.0_f64);
        for ((now, fate), (_, size)) in fates.iter().zip(&arrivals) {
            waiting.retain(|(out, _)| out > now);
            let bytes: u64 = waiting.iter().map(|(_, size)| size).sum();
            let queue = if in_bytes { bytes as f64 / 1500.0 } else { waiting.len() as f64 };
            longest = longest.max(queue);
            let has_room = match limit {
                QueueLimit::Bytes(limit) => bytes + size <= limit.get(),
                QueueLimit::Packets(limit) => (waiting.len() as u64) < limit,
            };
            match fate {
                Fate::Leaves(at) => {
                    prop_assert!(*at > last && has_room, "{queue} of {limit:?}");
                    last = *at;
                    waiting.push((*at, *size));
                }
                Fate::Dropped(DropCause::Queue) => {
                    prop_assert!(longest >= min_th || !has_room, "dropped at {queue}, below {min_th}");
                }
                Fate::Dropped(DropCause::Loss) => prop_assert!(false, "lost at random"),
            }
        }
        prop_assert_eq!(run(), fates, "one seed, one result");
    }
}
