//! Simulated connections against known results of TCP.

use std::time::Duration;

use longhaul_core::units::Bytes;
use proptest::prelude::*;

use super::{CongestionAlgorithm, Network, PacketCounts, Tcp};
use crate::PathSpec;
use crate::model::Time;

/// The paper's connections: 64 KB sockets, 1500-byte packets.
pub(in crate::model) const RENO: Tcp = Tcp {
    algorithm: CongestionAlgorithm::Reno,
    payload: Bytes::new(1460),
    segments: 1,
    buffer: Bytes::kib(64),
    initial: 2,
};
const WIDE: Tcp = Tcp { buffer: Bytes::gib(1), ..RENO };

/// The paper's path: 100 Mbit/s, a queue of 100 packets.
pub(in crate::model) fn path(one_way_ms: u64) -> PathSpec {
    PathSpec::of(&format!("rate=100Mbit; delay={one_way_ms}ms; queue=100packets"))
}

fn at(seconds: u64) -> Time {
    Time::START + Duration::from_secs(seconds)
}

/// Runs one endless download over `connections` for `seconds`.
fn endless(path: &PathSpec, tcp: Tcp, connections: usize, seconds: u64) -> PacketCounts {
    let mut network = Network::new(path, tcp);
    let download = network.add();
    network.connect(download, connections);
    network.request(download, u64::MAX / 2);
    assert_eq!(network.advance(at(seconds)), None);
    network.counts(download)
}

fn mbits(counts: PacketCounts, seconds: u64) -> f64 {
    (counts.arrived * 1460 * 8) as f64 / seconds as f64 / 1e6
}

#[test]
fn a_small_window_limits_a_connection_to_a_window_in_a_round_trip() {
    for (one_way, connections) in [(10, 1), (50, 1), (50, 4)] {
        let counts = endless(&path(one_way), RENO, connections, 100);
        // 44 packets per RTT; the RTT includes a packet's transmission time.
        let rtt = one_way as f64 * 2e-3 + 120e-6;
        let expected = (connections * 44 * 1460 * 8) as f64 / rtt / 1e6;
        let share = mbits(counts, 100) / expected;
        assert!((0.97..1.01).contains(&share), "{connections} x {one_way} ms: {share} of {expected} Mbit/s");
        assert_eq!((counts.retransmits, counts.out_of_order), (0, 0));
    }
}

/// Reno: Mathis, Semke, Mahdavi, Ott: "The Macroscopic Behavior of the TCP Congestion Avoidance
/// Algorithm", 1997. CUBIC: RFC 9438, 5.2, equation 6.
#[test]
fn windows_follow_the_response_function_under_random_loss() {
    let reno = |loss: f64| (1.5 / loss).sqrt();
    let cubic = |loss: f64| (0.4_f64 * 3.7 / (4.0 * 0.3)).powf(0.25) * (0.1 / loss).powf(0.75);
    for (algorithm, loss, seconds, window, slack) in [
        (CongestionAlgorithm::Reno, 3e-3, 1000, reno(3e-3), 0.8..1.1),
        (CongestionAlgorithm::Reno, 1e-3, 1000, reno(1e-3), 0.8..1.1),
        (CongestionAlgorithm::Cubic, 1e-4, 500, cubic(1e-4), 0.75..1.25),
    ] {
        let lossy = PathSpec::of(&format!("rate=10Gbit; rtt=100ms; loss={loss}"));
        let counts = endless(&lossy, Tcp { algorithm, ..WIDE }, 1, seconds);
        let seen = counts.arrived as f64 / seconds as f64 * 0.1;
        assert!(slack.contains(&(seen / window)), "{algorithm:?}: {seen} packets a round trip of {window}");
    }
}

#[test]
fn two_downloads_of_equal_connections_share_equally() {
    for algorithm in [CongestionAlgorithm::Reno, CongestionAlgorithm::Cubic] {
        let mut network = Network::new(&path(10), Tcp { algorithm, ..WIDE });
        let downloads = [network.add(), network.add()];
        for (seconds, download) in [(0, downloads[0]), (20, downloads[1])] {
            network.advance(at(seconds));
            network.connect(download, 2);
            network.request(download, u64::MAX / 2);
        }
        network.advance(at(100));
        let before = downloads.map(|download| network.counts(download).arrived);
        network.advance(at(200));
        let [first, second] = [0, 1].map(|n| network.counts(downloads[n]).arrived - before[n]);
        let share = first as f64 / (first + second) as f64;
        assert!((0.4..0.6).contains(&share), "{algorithm:?}: {share}");
    }
}

#[test]
fn retransmissions_back_off_on_a_dead_path() {
    let counts = endless(&path(10).with("loss=100%"), RENO, 1, 100);
    assert_eq!(counts.arrived, 0);
    // Timeouts of 0.2 s, doubled each time: nine within 100 s.
    assert!((7..=9).contains(&counts.retransmits), "{counts:?}");
}

#[test]
fn slow_start_restarts_after_idle() {
    let mut network = Network::new(&path(50), RENO);
    let download = network.add();
    network.connect(download, 1);
    let mut times = Vec::new();
    for (asked, pause) in [(1000, 0), (44, 0), (44, 1)] {
        network.advance(network.now + Duration::from_secs(pause));
        let begun = network.now;
        network.request(download, asked);
        assert_eq!(network.advance(at(1000)), Some(download));
        times.push(network.now.since(begun));
    }
    // One window at once; an initial window of 2 would take four more RTTs.
    assert!(times[1] < Duration::from_millis(110), "{times:?}");
    assert!((450..520).contains(&times[2].as_millis()), "{times:?}");
}

#[test]
fn new_connection_costs_one_rtt_and_closing_one_loses_nothing() {
    let mut network = Network::new(&path(50), RENO);
    let download = network.add();
    network.connect(download, 3);
    network.request(download, 1);
    assert_eq!(network.advance(at(10)), Some(download));
    let handshake_and_packet = network.now.since(Time::START);
    assert!((200..202).contains(&handshake_and_packet.as_millis()), "{handshake_and_packet:?}");
    network.request(download, 10_000);
    for connections in [8, 1, 0, 0, 2] {
        network.advance(network.now + Duration::from_millis(330));
        network.connect(download, connections);
    }
    assert_eq!(network.advance(at(1000)), Some(download));
    assert_eq!((network.missing(download), network.counts(download).arrived), (0, 10_001));
}

proptest! {
    /// Invariant: all requested packets arrive, once, and never faster than the path.
    #[test]
    fn all_packets_arrive_once(
        mbits in 1_u64..200,
        one_way_ms in 0_u64..100,
        queue in 2_u64..200,
        loss in 0.0_f64..0.1,
        connections in prop::collection::vec(1_usize..20, 1..4),
        is_cubic: bool,
        seed: u64,
    ) {
        let settings = format!("rate={mbits}Mbit; delay={one_way_ms}ms; queue={queue}packets; seed={seed}");
        let mut path = PathSpec::of(&settings);
        path.impairments.loss = loss;
        let algorithm = if is_cubic { CongestionAlgorithm::Cubic } else { CongestionAlgorithm::Reno };
        let mut network = Network::new(&path, Tcp { algorithm, ..RENO });
        for number in &connections {
            let download = network.add();
            network.connect(download, *number);
            network.request(download, 2000);
        }
        let mut complete: Vec<_> = connections.iter().map_while(|_| network.advance(at(100_000))).collect();
        complete.sort_unstable();
        prop_assert_eq!(complete, (0..connections.len()).collect::<Vec<_>>());
        let arrived: u64 = (0..connections.len()).map(|download| network.counts(download).arrived).sum();
        prop_assert_eq!(arrived, 2000 * connections.len() as u64);
        let least = Duration::from_nanos(arrived * 12_000_000 / mbits) ;
        prop_assert!(network.now.since(Time::START) >= least);
    }
}
