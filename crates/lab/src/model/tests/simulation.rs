//! The simulated sender on a long path against observations of real senders.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use proptest::prelude::*;

use crate::PathSpec;
use crate::model::simulation::{FlowTotals, Simulation};

const PACKET: Bytes = Bytes::new(1500);
const STEP: Duration = Duration::from_millis(100);

/// A path of 1 Gbit/s and 302 ms.
fn spec(queue: u64) -> PathSpec {
    PathSpec::of(&format!("rate=1Gbit; rtt=302ms; queue={queue}"))
}

fn simulation(spec: &PathSpec) -> Simulation {
    Simulation::new(spec.link(0), spec.one_way(), PACKET)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn pace_below_the_rate_is_held_without_loss_and_above_remaining_capacity_raises_rtt_and_losses() {
    let half = PathSpec { background: "50%@10s".parse().unwrap(), ..spec(1_000_000) };
    let mut sim = simulation(&half);
    sim.set_pace(Some(Rate::bits_per_sec(860_000_000)));
    let mut seen = Vec::new();
    sim.run(seconds(14), STEP, |observation, now| {
        seen.push((now, observation));
        // Paces at 450 Mbit/s after 12 s.
        (now > seconds(12)).then_some(Rate::bits_per_sec(450_000_000))
    });
    let at = |millis| seen.iter().find(|(now, _)| *now == Duration::from_millis(millis)).unwrap().1;
    let (alone, beside): (Vec<_>, Vec<_>) = seen.iter().partition(|(now, _)| *now <= seconds(10));
    assert!(alone.iter().all(|(_, seen)| seen.retransmits == 0 && seen.background_loss == 0.0));
    assert_eq!(beside.last().map(|(now, _)| *now), Some(seconds(14)));
    let free = at(9_900);
    assert!(free.goodput.as_bits_per_sec().abs_diff(860_000_000) < 2_000_000, "{free:?}");
    assert!(free.rtt.get() < Duration::from_micros(302_100), "nothing waits: {free:?}");
    assert!(free.min_rtt.get() >= Duration::from_millis(302));
    let full = at(11_000);
    assert!(full.retransmits > 0 && full.background_loss > 0.05, "{full:?}");
    assert!(full.rtt.get() > Duration::from_millis(307), "a full queue is 8 ms: {full:?}");
    let left = at(13_900);
    assert_eq!((left.retransmits, left.background_loss), (0, 0.0), "{left:?}");
    assert!(left.rtt.get() < Duration::from_millis(303), "{left:?}");
}

#[test]
fn the_window_recovers_as_cubic_does() {
    // In a deep queue only the first overshoot is lost; then the window is 0.7 of 2 BDPs.
    let mut sim = simulation(&spec(37_750_000));
    sim.run(seconds(60), STEP, |_, _| None);
    let FlowTotals { sent, acknowledged, lost, .. } = sim.totals();
    assert!(lost > 0 && lost < sent / 20, "{lost} of {sent}");
    assert!(acknowledged * 12_000 > 50 * 1_000_000_000, "{acknowledged}");
}

#[test]
fn window_counts_segments_for_any_packet_size() {
    let fast = PathSpec { rate: Some(Rate::bits_per_sec(2_000_000_000)), ..spec(15_000_000) };
    for (seconds, unequal) in [(2, 0.1), (10, 0.05)] {
        let [small, large] = [1, 10].map(|segments| {
            let mut sim = Simulation::new(fast.link(0), fast.one_way(), PACKET * segments);
            sim.run(self::seconds(seconds), STEP, |_, _| None);
            (sim.totals().acknowledged * segments) as f64
        });
        assert!((large / small - 1.0).abs() < unequal, "{seconds} s: {small} and {large} segments");
    }
}

proptest! {
    /// Invariants for any path and control: time advances, nothing is counted twice, the path's rate is never exceeded.
    #[test]
    fn conserves_packets(
        mbits in 1_u64..200,
        rtt_ms in 0_u64..300,
        queue_kb in 2_u64..500,
        paces in prop::collection::vec(prop::option::of(0_u64..400), 1..20),
        loss in 0.0_f64..0.2,
    ) {
        let spec = PathSpec::of(&format!("rate={mbits}Mbit; rtt={rtt_ms}ms; queue={queue_kb}kB"));
        let spec = PathSpec { loss, ..spec };
        let mut sim = simulation(&spec);
        let mut paces = paces.into_iter().cycle();
        let mut acknowledged = 0;
        sim.run(seconds(2), STEP, |seen, _| {
            acknowledged += seen.goodput.as_bits_per_sec() / 10;
            paces.next()?.map(|mbits| Rate::bits_per_sec(mbits * 1_000_000))
        });
        let totals = sim.totals();
        prop_assert!(totals.sent > 0 && totals.acknowledged + totals.lost <= totals.sent);
        prop_assert!(totals.acknowledged * 12_000 <= mbits * 2_000_000, "{totals:?}");
        prop_assert!(acknowledged <= totals.acknowledged * 12_000);
    }
}
