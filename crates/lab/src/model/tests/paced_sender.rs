//! The simulated sender on a long path against observations of real senders.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use proptest::prelude::*;

use crate::PathSpec;
use crate::model::paced_sender::PacedSender;
use crate::model::tcp::PacketCounts;

const PACKET: Bytes = Bytes::new(1500);
const STEP: Duration = Duration::from_millis(100);

/// A path of 1 Gbit/s and 302 ms.
fn spec(queue: u64) -> PathSpec {
    PathSpec::of(&format!("rate=1Gbit; rtt=302ms; queue={queue}"))
}

fn mbits(mbits: u64) -> Rate {
    Rate::bits_per_sec(mbits * 1_000_000)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn pace_below_the_rate_is_held_without_loss_and_above_remaining_capacity_raises_rtt_and_losses() {
    let half = spec(1_000_000).with("background=50%@10s");
    let mut sender = PacedSender::new(&half, PACKET, None).at(mbits(860));
    let alone = sender.run_until(seconds(9));
    assert_eq!((alone.lost, sender.background().lost), (0, 0));
    // A second each: alone, beside background traffic with a full queue, and at a lower pace.
    let mut second = |from| {
        sender.run_until(seconds(from));
        let (before, background) = (sender.counts(), sender.background());
        let seen = sender.observe(seconds(1)).unwrap();
        (seen, sender.counts() - before, sender.background().lost - background.lost)
    };
    let (free, counts, _) = second(9);
    assert!((PACKET * counts.arrived * 8).get().abs_diff(860_000_000) < 2_000_000, "{counts:?}");
    assert!(free.rtt.get() < Duration::from_micros(302_100), "nothing waits: {free:?}");
    assert!(free.min_rtt.get() >= Duration::from_millis(302));
    let (full, counts, background) = second(10);
    assert!(counts.lost > 0 && background > 2000, "{counts:?}, {background} of 42,000 lost");
    assert!(full.rtt.get() > Duration::from_millis(307), "a full queue is 8 ms: {full:?}");
    let mut sender = sender.at(mbits(450));
    sender.run_until(seconds(13));
    let (before, background) = (sender.counts().lost, sender.background().lost);
    let left = sender.observe(seconds(1)).unwrap();
    assert_eq!((sender.counts().lost, sender.background().lost), (before, background), "{left:?}");
    assert!(left.rtt.get() < Duration::from_millis(303), "{left:?}");
}

#[test]
fn the_window_recovers_as_cubic_does() {
    // In a deep queue only the first overshoot is lost; then the window is 0.7 of 2 BDPs.
    let mut sender = PacedSender::new(&spec(37_750_000), PACKET, None);
    let PacketCounts { sent, arrived, lost, .. } = sender.run_until(seconds(60));
    assert!(lost > 0 && lost < sent / 20, "{lost} of {sent}");
    assert!(arrived * 12_000 > 50 * 1_000_000_000, "{arrived}");
}

#[test]
fn window_counts_segments_for_any_packet_size() {
    let fast = PathSpec { rate: Some(mbits(2000)), ..spec(15_000_000) };
    for (seconds, unequal) in [(2, 0.1), (10, 0.05)] {
        let [small, large] = [1, 10].map(|segments| {
            let mut sender = PacedSender::new(&fast, PACKET * segments, None);
            (sender.run_until(self::seconds(seconds)).arrived * segments) as f64
        });
        assert!((large / small - 1.0).abs() < unequal, "{seconds} s: {small} and {large} segments");
    }
}

proptest! {
    /// Invariants for any path and pace: time advances, nothing is counted twice, the path's rate
    /// is never exceeded.
    #[test]
    fn conserves_packets(
        rate in 1_u64..200,
        rtt_ms in 0_u64..300,
        queue_kb in 2_u64..500,
        paces in prop::collection::vec(0_u64..400, 1..20),
        loss in 0.0_f64..0.2,
    ) {
        let mut spec = PathSpec::of(&format!("rate={rate}Mbit; rtt={rtt_ms}ms; queue={queue_kb}kB"));
        spec.impairments.loss = loss;
        let mut sender = PacedSender::new(&spec, PACKET, None);
        for (step, pace) in (1..=20).zip(paces.into_iter().cycle()) {
            sender.run_until(STEP * step);
            sender = sender.at(mbits(pace));
        }
        let counts = sender.counts();
        prop_assert!(counts.sent > 0 && counts.arrived + counts.lost <= counts.sent, "{counts:?}");
        prop_assert!(counts.arrived * 12_000 <= rate * 2_000_000, "{counts:?}");
    }
}
