//! BBR in virtual time against its publication and measurements of the kernel's BBR.

use std::time::Duration;

use longhaul_core::tune::pace::Observation;
use longhaul_core::units::Bytes;

use crate::PathSpec;
use crate::model::paced_sender::PacedSender;
use crate::model::tcp::CongestionAlgorithm;

const PACKET: Bytes = Bytes::new(1500);
const RTT: Duration = Duration::from_millis(100);

/// A path of 100 Mbit/s and 100 ms with a queue of `queue` BDPs.
fn path(queue: f64) -> PathSpec {
    let queue = (1_250_000.0 * queue) as u64;
    PathSpec::of(&format!("rate=100Mbit; rtt=100ms; queue={queue}; congestion=bbr"))
}

fn sender(spec: &PathSpec, packet: Bytes) -> PacedSender {
    PacedSender::new(spec, packet, None)
}

/// Returns the goodput over the path's rate from one second to another.
fn share(sender: &mut PacedSender, packet: Bytes, (from, to): (u64, u64)) -> f64 {
    sender.run_until(Duration::from_secs(from));
    let arrived = packet * sender.run_until(Duration::from_secs(to)).arrived;
    arrived.get() as f64 * 8.0 / ((to - from) as f64 * 1e8)
}

/// Observes for some seconds, every 20 ms.
fn observe(sender: &mut PacedSender, seconds: u64) -> Vec<Observation> {
    (0..seconds * 50).filter_map(|_| sender.observe(Duration::from_millis(20))).collect()
}

#[test]
fn path_is_full_after_startup_for_any_packet_size() {
    // Packets of ten segments: the window counts segments.
    for packet in [PACKET, PACKET * 10] {
        let mut sender = sender(&path(1.0), packet);
        // Ten segments double each RTT: 833 are in flight after 7 RTTs, and Startup's queue then
        // drains.
        let [start, rest] = [(0, 2), (2, 9)].map(|seconds| share(&mut sender, packet, seconds));
        assert!(start > 0.5 && rest > 0.97, "{start} in the first 2 s, {rest} then");
    }
}

#[test]
fn queue_is_a_quarter_of_the_bdp_at_most_in_steady_state() {
    let mut sender = sender(&path(3.0), PACKET);
    let startup = observe(&mut sender, 3).iter().map(|seen| seen.rtt.get()).max().unwrap_or_default();
    // Startup has two BDPs queued beyond the path's own BDP, or as much as the window of 2.89 BDPs
    // allows.
    assert!((RTT * 2..RTT * 3).contains(&startup), "{startup:?}");
    let mut rtts: Vec<_> = observe(&mut sender, 6).iter().map(|seen| seen.rtt.get()).collect();
    rtts.sort_unstable();
    let (median, most) = (rtts[rtts.len() / 2], rtts[rtts.len() - 1]);
    assert!(most < RTT.mul_f64(1.3) && median < RTT.mul_f64(1.05), "median {median:?}, most {most:?}");
}

#[test]
fn random_loss_of_one_percent_does_not_slow_it() {
    let [bbr, cubic] = ["bbr", "cubic"].map(|congestion| {
        let lossy = path(1.0).with(&format!("loss=0.01; congestion={congestion}"));
        share(&mut sender(&lossy, PACKET), PACKET, (3, 9))
    });
    assert!(bbr > 0.95 && cubic < 0.3, "bbr {bbr}, cubic {cubic}");
}

#[test]
fn min_rtt_is_measured_anew_every_ten_seconds() {
    // A CUBIC flow keeps a queue, so that the minimum RTT shows in ProbeRtt only.
    let shared = path(2.0).with("cross_flows=1; congestion=cubic");
    let mut sender = sender(&shared, PACKET).under(CongestionAlgorithm::Bbr);
    let windows: Vec<_> = observe(&mut sender, 40).iter().map(|seen| seen.window).collect();
    let is_pause = |pair: &&[Bytes]| pair[0] > pair[1] && pair[1] == PACKET * 4;
    let pauses = windows.windows(2).filter(is_pause).count();
    assert!((2..=4).contains(&pauses), "{pauses} times in 40 s");
}

#[test]
fn flows_share_a_path() {
    let shared = path(1.0).with("cross_flows=1");
    let share = share(&mut sender(&shared, PACKET), PACKET, (30, 70));
    assert!((0.3..0.7).contains(&share), "{share} of the path");
}

#[test]
fn startup_overflows_a_shallow_queue_and_fills_the_path() {
    // Measured with the kernel's BBR at 1 Gbit/s and 302 ms: 784 Mbit/s in the first 25 s, 108,000
    // retransmits.
    let mut sender = sender(&path(0.03), PACKET);
    let lost = sender.run_until(Duration::from_secs(3)).lost;
    let share = share(&mut sender, PACKET, (3, 9));
    assert!(lost > 500 && share > 0.85, "{lost} lost, then {share} of the path");
}
