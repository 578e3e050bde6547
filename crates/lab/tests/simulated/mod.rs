//! Connections that never end, in the lab's simulated TCP: what is compared with ns-2 and with the kernel.

use std::time::Duration;

use longhaul_lab::PathSpec;
use longhaul_lab::model::Time;
use longhaul_lab::model::tcp::{Network, Tcp};

/// What connections did between two times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Payload, in bits a second.
    pub(crate) goodput: f64,
    /// The share of packets that were sent again, or lost.
    pub(crate) again: f64,
}

/// Runs `connections` of one download from the start; returns what they did between `from` and `to`.
pub(crate) fn run(path: &PathSpec, tcp: Tcp, connections: usize, (from, to): (Duration, Duration)) -> Seen {
    let mut network = Network::new(path, tcp);
    let download = network.add();
    network.connect(download, connections);
    network.ask(download, u64::MAX / 2);
    network.advance(Time::START + from);
    let before = network.counts(download);
    network.advance(Time::START + to);
    let after = network.counts(download);
    let arrived = after.arrived - before.arrived;
    let again = (after.retransmits - before.retransmits) as f64;
    let bits = (tcp.payload * arrived * 8).get() as f64;
    Seen { goodput: bits / (to - from).as_secs_f64(), again: again / (again + arrived as f64) }
}
