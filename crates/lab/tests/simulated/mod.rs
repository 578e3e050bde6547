//! Endless connections in the lab's simulated TCP, for comparison with ns-2 and the kernel.

use std::time::Duration;

use longhaul_lab::PathSpec;
use longhaul_lab::model::Time;
use longhaul_lab::model::tcp::{Network, Tcp};

/// Measurements of connections in an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Payload in bits per second.
    pub(crate) goodput: f64,
    /// Share of packets that were retransmitted or lost.
    pub(crate) again: f64,
}

/// Runs `connections` of one download from the start; returns measurements between `from` and `to`.
pub(crate) fn run(path: &PathSpec, tcp: Tcp, connections: usize, (from, to): (Duration, Duration)) -> Seen {
    let mut network = Network::new(path, tcp);
    let download = network.add();
    network.connect(download, connections);
    network.request(download, u64::MAX / 2);
    network.advance(Time::START + from);
    let before = network.counts(download);
    network.advance(Time::START + to);
    let after = network.counts(download);
    let arrived = after.arrived - before.arrived;
    let again = (after.retransmits - before.retransmits) as f64;
    let bits = (tcp.payload * arrived * 8).get() as f64;
    Seen { goodput: bits / (to - from).as_secs_f64(), again: again / (again + arrived as f64) }
}
