//! Simulated TCP against ns-2 (Debian package `ns2`), the simulator of the APT paper.

use std::process::Command;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_lab::model::tcp::{CongestionAlgorithm, Tcp};
use longhaul_lab::{PathSpec, QueueLimit};

use crate::common::path;
use crate::simulated::{self, Seen};

const SECONDS: u64 = 60;
/// Maximum relative difference of the goodputs.
const WITHIN: f64 = 0.1;

/// Endless connections on a path of 100 Mbit/s with a queue of 100 packets.
#[derive(Debug, Clone, Copy)]
struct Case {
    aqm: &'static str,
    /// The receiver's window in packets.
    window: u64,
    connections: usize,
    one_way_ms: u64,
}

impl Case {
    /// Runs the case in ns-2; `None` if ns-2 is not installed.
    fn in_ns2(self) -> Option<Seen> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ns2/parallel.tcl");
        let queue = if self.aqm == "red" { "RED" } else { "DropTail" };
        let numbers = [self.window, self.connections as u64, self.one_way_ms, SECONDS];
        let run =
            Command::new("ns").args([script, queue]).args(numbers.map(|number| number.to_string())).output();
        let output = match run {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                assert!(
                    std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                    "ns is not installed: scripts/setup.sh test"
                );
                return None;
            }
            Err(error) => panic!("cannot run ns: {error}"),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let [goodput, again] = numbers[..] else { panic!("ns says '{text}', {output:?}") };
        Some(Seen { goodput, again })
    }

    /// Runs the case in the lab's simulation.
    fn here(self) -> Seen {
        let path = PathSpec {
            queue: Some(QueueLimit::Packets(100)),
            aqm: self.aqm.parse().unwrap(),
            ..path("100Mbit", 2 * self.one_way_ms)
        };
        let payload = Bytes::new(1460);
        let (algorithm, buffer) = (CongestionAlgorithm::Reno, payload * self.window);
        let tcp = Tcp { algorithm, payload, segments: 1, buffer, initial: 2 };
        let at = |share: f64| Duration::from_secs(SECONDS).mul_f64(share);
        simulated::run(&path, tcp, self.connections, (at(0.1), at(1.0)))
    }

    /// Compares both simulations; returns false if ns-2 is not installed.
    fn agrees(self) -> bool {
        let here = self.here();
        let Some(there) = self.in_ns2() else {
            println!("skipped: ns is not installed");
            return false;
        };
        let both = format!("{self:?}: {here:?}, and ns-2 {there:?}");
        println!("{both}");
        assert!((here.goodput / there.goodput - 1.0).abs() < WITHIN, "{both}");
        // Absolute slack: a few of ten thousand packets are noise.
        let slack = (0.4 * there.again).max(3e-4);
        assert!((here.again - there.again).abs() < slack, "{both}");
        true
    }
}

#[test]
fn simulated_connections_have_the_goodput_of_ns2() {
    // The paper's connections with 64 KB sockets.
    let small = [10, 50].into_iter().flat_map(|delay| [1, 4, 16, 32].map(|n| ("droptail", 44, n, delay)));
    // Connections limited by losses only.
    let wide = ["droptail", "red"].into_iter().flat_map(|aqm| {
        [(1, 10), (4, 10), (16, 10), (4, 50), (16, 50)].map(|(n, delay)| (aqm, 4000, n, delay))
    });
    for (aqm, window, connections, one_way_ms) in small.chain(wide) {
        if !(Case { aqm, window, connections, one_way_ms }).agrees() {
            return;
        }
    }
}
