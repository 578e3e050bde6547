//! The tuner in simulated time, on simulated paths, compared with its targets.

mod random_input;
mod red;
mod several_sessions;
mod simulated_path;
mod single_session;

use std::time::Duration;

use simulated_path::{SimulatedPath, SimulatedSession};

use super::{Interval, Remembered};
use crate::units::{Bytes, Rate, Rtt};

impl Interval {
    /// An interval without a queue, losses or other limits, in the midst of a large transfer.
    pub(in crate::tune) fn free(goodput: Rate, rtt: Rtt, streams: usize) -> Self {
        let (data_rtt, left) = (Some(rtt), Bytes::gib(99));
        Self { goodput, rtt, data_rtt, streams, out_of_order: 0, left, held_back: false, pressure: 0.0 }
    }
}

fn remembered(rtt_ms: u64, mbit: u64, streams: usize) -> Option<Remembered> {
    Some(Remembered { rtt: Rtt::new(Duration::from_millis(rtt_ms)), rate: Rate::mbit(mbit), streams })
}

const FOREVER: f64 = 1e15;
const PACKET: f64 = 1500.0;
const KIB: f64 = 1024.0;
const GIB: f64 = 1024.0 * 1024.0 * KIB;
/// A send buffer of 4 MB (the default of tcp_wmem), less its bookkeeping, in bytes.
const STOCK: f64 = 3.2e6;
/// A window larger than any path needs, in bytes.
const OPEN: f64 = 1e9;

/// The path of the paper: 100 Mbit/s, a queue of 100 packets, socket buffers of 64 KB.
fn papers(rtt_ms: f64) -> SimulatedPath {
    SimulatedPath::new(100.0, rtt_ms, 100.0 * PACKET, 64.0 * KIB)
}

/// A path of 10 Gbit/s and 200 ms with a queue of one BDP.
fn long_fat(window: f64) -> SimulatedPath {
    SimulatedPath::new(10_000.0, 200.0, 250e6, window)
}

/// Returns a session's share of the path from `from` until `end`.
fn share(path: &mut SimulatedPath, session: &mut SimulatedSession, from: f64, end: f64) -> f64 {
    let capacity = path.capacity;
    path.run(std::slice::from_mut(session), from);
    let before = session.received;
    path.run(std::slice::from_mut(session), end);
    (session.received - before) / (end - from) / capacity
}

/// Runs a session on a path from the start; returns its share from `from` until `end`, and the
/// session.
fn alone(mut path: SimulatedPath, from: f64, end: f64) -> (f64, SimulatedSession) {
    let mut session = path.session(0.0, FOREVER);
    (share(&mut path, &mut session, from, end), session)
}

/// Runs a session for at most `end` seconds; returns when it ended, and its numbers of streams.
fn time(mut path: SimulatedPath, mut session: SimulatedSession, end: f64) -> (f64, Vec<(f64, usize)>) {
    path.run(std::slice::from_mut(&mut session), end);
    (path.now, session.trace)
}

/// Returns the largest share of the path among these fixed numbers of streams.
fn best_fixed(path: &SimulatedPath, streams: &[usize], from: f64, end: f64) -> f64 {
    let shares = streams.iter().map(|&streams| {
        let mut fixed = SimulatedSession::fixed(streams, 0.0, FOREVER);
        share(&mut path.clone(), &mut fixed, from, end)
    });
    shares.fold(0.0, f64::max)
}
