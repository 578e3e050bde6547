//! The simulated TCP next to the kernel's own, on the same path in real time.
//!
//! A program of its own, so that nothing else runs meanwhile: senders that a busy core wakes late send bursts, and lose more.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    dead_code,
    reason = "tests fail so, and measure time; the other tests of labs need more of what they share"
)]

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_lab::model::tcp::{CongestionAlgorithm, Tcp};
use longhaul_lab::{Lab, PathSpec, QueueLimit};

#[path = "lab/common.rs"]
mod common;
mod simulated;

use common::{first_packet, measure_while_keeping_up, path, within};
use simulated::Seen;

/// From when, behind slow start, and until when: a few times what a window needs to grow back after a loss, or chance decides.
const SEEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(7));
/// What the goodputs may differ.
const WITHIN: f64 = 0.1;
/// The share that the kernel loses, over the simulated one: it sends several packets at once, of which the queue drops more.
const LOST: RangeInclusive<f64> = 0.7..=3.0;
/// Of fewer connections a few seconds show a handful of losses, which says nothing.
const MANY: usize = 16;

/// The paper's path, at another delay.
fn spec(congestion: &str, connections: usize, rtt_ms: u64) -> PathSpec {
    PathSpec {
        congestion: congestion.to_owned(),
        cross_flows: connections.to_string().parse().unwrap(),
        queue: Some(QueueLimit::Packets(100)),
        ..path("100Mbit", rtt_ms)
    }
}

/// Runs connections of the kernel.
fn in_kernel(lab: &Lab) -> Seen {
    first_packet(lab);
    thread::sleep(SEEN.0);
    let before = lab.stats().unwrap();
    thread::sleep(SEEN.1 - SEEN.0);
    let after = lab.stats().unwrap();
    let bits = (after.cross_flows.bytes - before.cross_flows.bytes).get() as f64 * 8.0;
    let lost = (after.server_to_client.dropped_queue - before.server_to_client.dropped_queue) as f64;
    let passed = (after.server_to_client.packets - before.server_to_client.packets) as f64;
    let time = after.cross_flows.time - before.cross_flows.time;
    Seen { goodput: bits / time.as_secs_f64(), again: lost / (lost + passed) }
}

/// Runs simulated connections, whose losses depend on chance: the mean of several times.
fn in_virtual_time(spec: &PathSpec, algorithm: CongestionAlgorithm, connections: usize) -> Seen {
    // As the kernel's: timestamps take 12 bytes of each packet, and ten packets are the first window.
    let tcp = Tcp { algorithm, payload: Bytes::new(1448), buffer: Bytes::mib(3), initial: 10 };
    let runs = (1..=4).map(|seed| simulated::run(&PathSpec { seed, ..spec.clone() }, tcp, connections, SEEN));
    let runs: Vec<Seen> = runs.collect();
    let mean = |of: fn(&Seen) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Seen { goodput: mean(|seen| seen.goodput), again: mean(|seen| seen.again) }
}

#[test]
fn the_kernels_connections_have_the_simulated_goodput() {
    for (congestion, algorithm) in
        [("reno", CongestionAlgorithm::Reno), ("cubic", CongestionAlgorithm::Cubic)]
    {
        // The longer, the less of a round trip does the queue hold, and the less is the goodput; but the longer takes slow start.
        for (connections, rtt_ms) in [(1, 20), (4, 40), (MANY, 40)] {
            let spec = spec(congestion, connections, rtt_ms);
            let simulated = in_virtual_time(&spec, algorithm, connections);
            measure_while_keeping_up(&spec, |lab| {
                let kernel = in_kernel(lab);
                let what = format!("{connections} x {congestion}, {rtt_ms} ms, of {simulated:?}");
                println!("{what}: {kernel:?}");
                let goodput = kernel.goodput / simulated.goodput;
                within(&format!("goodput of {what}"), goodput, 1.0 - WITHIN..=1.0 + WITHIN)?;
                let lost = kernel.again / simulated.again;
                if connections < MANY { Ok(()) } else { within(&format!("loss of {what}"), lost, LOST) }
            });
        }
    }
}
