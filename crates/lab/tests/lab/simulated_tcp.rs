//! The simulated TCP next to the kernel's own, on the same path in real time.

use std::thread;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_lab::model::tcp::{Algorithm, Tcp};
use longhaul_lab::{PathSpec, QueueLimit};

use crate::common::{lab, path};
use crate::cross_flows::first_packet;
use crate::simulated::{self, Seen};

/// From when, behind slow start, and until when.
const SEEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(3500));
/// What the goodputs may differ.
const WITHIN: f64 = 0.15;

/// The paper's path, at another delay.
fn spec(congestion: &str, connections: usize, rtt_ms: u64) -> PathSpec {
    PathSpec {
        congestion: congestion.to_owned(),
        cross_flows: connections.to_string().parse().unwrap(),
        queue: Some(QueueLimit::Packets(100)),
        ..path("100Mbit", rtt_ms)
    }
}

/// Runs connections of the kernel; an error where this machine could not keep up.
fn in_kernel(spec: &PathSpec) -> Option<Result<Seen, String>> {
    let lab = lab(spec.clone())?;
    first_packet(&lab);
    thread::sleep(SEEN.0);
    let before = lab.stats().unwrap();
    thread::sleep(SEEN.1 - SEEN.0);
    let after = lab.stats().unwrap();
    let excuses = after.infidelities(spec.one_way());
    if !excuses.is_empty() {
        return Some(Err(excuses.join("; ")));
    }
    let bits = (after.cross_flows.bytes - before.cross_flows.bytes).get() as f64 * 8.0;
    let lost = (after.far_to_near.dropped_queue - before.far_to_near.dropped_queue) as f64;
    let passed = (after.far_to_near.packets - before.far_to_near.packets) as f64;
    let time = after.cross_flows.time - before.cross_flows.time;
    Some(Ok(Seen { goodput: bits / time.as_secs_f64(), again: lost / (lost + passed) }))
}

/// Runs simulated connections, whose losses depend on chance: several times.
fn in_virtual_time(spec: &PathSpec, algorithm: Algorithm, connections: usize) -> Vec<Seen> {
    // As the kernel's: timestamps take 12 bytes of each packet, and ten packets are the first window.
    let tcp = Tcp { algorithm, payload: Bytes::new(1448), buffer: Bytes::mib(3), initial: 10 };
    let run = |seed| simulated::run(&PathSpec { seed, ..spec.clone() }, tcp, connections, SEEN);
    (1..=4).map(run).collect()
}

fn assert_alike(what: &str, connections: usize, kernel: Seen, simulated: &[Seen]) {
    let mean = |of: fn(&Seen) -> f64| simulated.iter().map(of).sum::<f64>() / simulated.len() as f64;
    let (goodput, again) = (mean(|seen| seen.goodput), mean(|seen| seen.again));
    println!("{what}: {kernel:?}, simulated {goodput} and {again}");
    assert!((goodput / kernel.goodput - 1.0).abs() < WITHIN, "{what}: {kernel:?}, simulated {simulated:?}");
    // Of few connections a few seconds show a handful of losses, which says nothing. The kernel sends several packets at once,
    // of which the queue drops more: seen is twice as much.
    let (least, most) = (again.min(kernel.again), again.max(kernel.again));
    assert!(
        connections < 16 || most < 4.0 * least,
        "{what}: lost by the kernel {}, simulated {again}",
        kernel.again
    );
}

#[test]
fn the_kernels_connections_have_the_simulated_goodput() {
    let mut excuses = Vec::new();
    for (congestion, algorithm) in [("reno", Algorithm::Reno), ("cubic", Algorithm::Cubic)] {
        // The longer, the less of a round trip does the queue hold, and the less is the goodput; but the longer takes slow start.
        for (connections, rtt_ms) in [(1, 20), (4, 40), (16, 40)] {
            let spec = spec(congestion, connections, rtt_ms);
            let what = format!("{connections} x {congestion}, {rtt_ms} ms");
            match in_kernel(&spec) {
                None => return,
                Some(Err(excuse)) => excuses.push(format!("{what}: this machine is too busy: {excuse}")),
                Some(Ok(kernel)) => {
                    let simulated = in_virtual_time(&spec, algorithm, connections);
                    assert_alike(&what, connections, kernel, &simulated);
                }
            }
        }
    }
    println!("skipped: {excuses:#?}");
    assert!(excuses.len() < 6 || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{excuses:?}");
}
