//! The simulated TCP next to ns-2 (Debian's package `ns2`), the simulator of the paper about APT.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail so")]

use std::process::Command;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::model::Time;
use longhaul_lab::model::tcp::{Algorithm, Network, Tcp};
use longhaul_lab::{PathSpec, QueueLimit};

const SECONDS: u64 = 60;
/// What the two may differ.
const WITHIN: f64 = 0.1;

/// Connections that never end, on a path of 100 Mbit/s with a queue of 100 packets.
#[derive(Debug, Clone, Copy)]
struct Case {
    aqm: &'static str,
    /// The receiver's, in packets.
    window: u64,
    connections: usize,
    one_way_ms: u64,
}

impl Case {
    /// Returns the goodput in ns-2, in bits a second; `None` where it is not installed.
    fn in_ns2(self) -> Option<f64> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ns2/parallel.tcl");
        let queue = if self.aqm == "red" { "RED" } else { "DropTail" };
        let numbers = [self.window, self.connections as u64, self.one_way_ms, SECONDS];
        let run = Command::new("ns")
            .args([script, "Sack1", queue])
            .args(numbers.map(|number| number.to_string()))
            .output();
        let output = match run {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                assert!(std::env::var_os("CI").is_none(), "ns is not installed: scripts/setup.sh test");
                return None;
            }
            Err(error) => panic!("cannot run ns: {error}"),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.trim().parse().unwrap_or_else(|_| panic!("ns says '{text}', {output:?}")))
    }

    /// Returns the goodput in our simulation.
    fn here(self) -> f64 {
        let path = PathSpec {
            rate: Some(Rate::bits_per_sec(100_000_000)),
            rtt: Rtt::new(Duration::from_millis(2 * self.one_way_ms)),
            queue: Some(QueueLimit::Packets(100)),
            aqm: self.aqm.parse().unwrap(),
            ..PathSpec::default()
        };
        let payload = Bytes::new(1460);
        let tcp = Tcp { algorithm: Algorithm::Reno, payload, buffer: payload * self.window, initial: 2 };
        let mut network = Network::new(&path, tcp);
        let download = network.add();
        network.connect(download, self.connections);
        network.ask(download, u64::MAX / 2);
        let at = |seconds| Time::START + Duration::from_secs(seconds);
        network.advance(at(SECONDS / 10));
        let before = network.counts(download).arrived;
        network.advance(at(SECONDS));
        let arrived = network.counts(download).arrived - before;
        (arrived * 1460 * 8) as f64 / (SECONDS as f64 * 0.9)
    }

    /// Says whether ns-2 is there, and fails where it has another goodput.
    fn agrees(self) -> bool {
        let here = self.here();
        let Some(there) = self.in_ns2() else {
            println!("skipped: ns is not installed");
            return false;
        };
        println!("{self:?}: {:.2} Mbit/s, ns-2 {:.2}", here / 1e6, there / 1e6);
        assert!((here / there - 1.0).abs() < WITHIN, "{self:?}: {here} bit/s, and {there} in ns-2");
        true
    }
}

/// The paper's connections, whose sockets hold 64 KB.
#[test]
fn small_windows_have_the_goodput_of_ns2() {
    for one_way_ms in [10, 50] {
        for connections in [1, 4, 16, 32] {
            if !(Case { aqm: "droptail", window: 44, connections, one_way_ms }).agrees() {
                return;
            }
        }
    }
}

/// Nothing but losses limits these.
#[test]
fn wide_windows_have_the_goodput_of_ns2() {
    for aqm in ["droptail", "red"] {
        for (connections, one_way_ms) in [(1, 10), (4, 10), (16, 10), (4, 50), (16, 50)] {
            if !(Case { aqm, window: 4000, connections, one_way_ms }).agrees() {
                return;
            }
        }
    }
}
