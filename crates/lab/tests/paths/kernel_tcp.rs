//! Simulated TCP against the kernel's TCP on one path in real time.

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_lab::model::tcp::{CongestionAlgorithm, Tcp};
use longhaul_lab::{Lab, PathSpec};

use crate::common::{first_packet, path, with};
use crate::measuring::{measure_while_keeping_up, within};
use crate::simulated::{self, Seen};

/// Measured interval after slow start: several times the regrowth of a window after a loss, to
/// limit the variance.
const SEEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(7));
/// Maximum relative difference of the goodputs.
const WITHIN: f64 = 0.1;
/// Bounds of kernel loss over simulated loss: the kernel sends bursts, of which the queue drops
/// more.
const LOST: RangeInclusive<f64> = 0.7..=3.0;
/// Minimum of connections for a comparison of losses: fewer have a handful of losses in a few
/// seconds.
const MANY: usize = 16;

/// The paper's path with another delay.
fn spec(congestion: &str, connections: usize, rtt_ms: u64) -> PathSpec {
    let settings = format!("congestion={congestion}; cross_flows={connections}; queue=100packets");
    with(path("100Mbit", rtt_ms), &settings)
}

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

/// Measures simulated connections, whose losses are random: the mean of several runs.
fn in_virtual_time(spec: &PathSpec, algorithm: CongestionAlgorithm, connections: usize) -> Seen {
    // Like the kernel: 12 bytes of timestamps per packet, and an initial window of ten packets.
    let (payload, buffer) = (Bytes::new(1448), Bytes::mib(3));
    let tcp = Tcp { algorithm, payload, segments: 1, buffer, initial: 10 };
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
        // A longer RTT lowers the goodput, as the queue is a smaller part of it, but also lengthens
        // slow start.
        for (connections, rtt_ms) in [(1, 20), (4, 40), (MANY, 40)] {
            let spec = spec(congestion, connections, rtt_ms);
            let simulated = in_virtual_time(&spec, algorithm, connections);
            let name = format!("{connections} x {congestion}, {rtt_ms} ms");
            measure_while_keeping_up(&name, &spec, |lab| {
                let kernel = in_kernel(lab);
                println!("{name}: {kernel:?}, simulated {simulated:?}");
                let goodput = kernel.goodput / simulated.goodput;
                within("goodput over that of the simulation", goodput, 1.0 - WITHIN..=1.0 + WITHIN)?;
                let lost = kernel.again / simulated.again;
                if connections < MANY {
                    Ok(())
                } else {
                    within("loss over that of the simulation", lost, LOST)
                }
            });
        }
    }
}
