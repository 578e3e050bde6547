//! Measures a source's streams from one interval to the next, for the control of their number.

use std::collections::HashMap;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use longhaul_core::tune::streams::Interval;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::pressure::{Pressure, PressureFiles};

use super::stream_set::StreamSet;

/// Measures from one call to the next.
pub(super) struct IntervalMeter {
    rtt: Rtt,
    pressure: PressureFiles,
    before: Look,
}

/// Counters at one moment.
struct Look {
    at: Instant,
    /// Read, and waiting in sockets.
    arrived: Bytes,
    /// By stream.
    received: HashMap<usize, u64>,
    out_of_order: u64,
    /// For how long streams have waited for this host, summed over the streams.
    waited: Duration,
    cpu: Duration,
    pressure: Pressure,
}

/// Streams that wait for this host for this share of the time are held back by it.
const HELD_BACK: f64 = 0.1;
/// So are streams whose job uses this share of all cores.
const BUSY: f64 = 0.85;

impl IntervalMeter {
    /// Starts the first interval of a path of this RTT.
    pub(super) fn new(rtt: Rtt, set: &StreamSet<'_>) -> Self {
        let pressure = PressureFiles::find();
        let before = Look::now(set, &pressure).0;
        Self { rtt, pressure, before }
    }

    /// Returns how long an interval should be.
    pub(super) fn interval(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(100);
        self.rtt.get().max(SHORTEST)
    }

    /// Ends an interval and starts the next.
    pub(super) fn look(&mut self, set: &StreamSet<'_>) -> Interval {
        let (now, sockets) = Look::now(set, &self.pressure);
        let before = std::mem::replace(&mut self.before, now);
        let now = &self.before;
        self.rtt = sockets.min_rtt.map_or(self.rtt, |rtt| rtt.min(self.rtt));
        let time = now.at.saturating_duration_since(before.at);
        // A new connection has received less than the one before it.
        let carried =
            |(stream, received): &(&usize, &u64)| before.received.get(stream).unwrap_or(&0) != *received;
        let streams = now.received.iter().filter(carried).count();
        let share = |spent: Duration, of: usize| {
            spent.as_secs_f64() / (time.as_secs_f64() * of.max(1) as f64).max(1e-9)
        };
        let cores = available_parallelism().map_or(1, usize::from);
        let held_back = share(now.waited.saturating_sub(before.waited), streams) > HELD_BACK
            || share(now.cpu.saturating_sub(before.cpu), cores) > BUSY;
        let pipeline = &set.transfer.pipeline;
        let present = pipeline.resumed() + set.transfer.received();
        Interval {
            goodput: Rate::over(now.arrived - before.arrived, time),
            rtt: self.rtt,
            data_rtt: sockets.data_rtt,
            streams,
            out_of_order: now.out_of_order.saturating_sub(before.out_of_order),
            left: pipeline.size().unwrap_or_default() - present,
            held_back,
            pressure: share(now.pressure.since(&before.pressure), 1),
        }
    }
}

impl Look {
    fn now(set: &StreamSet<'_>, pressure: &PressureFiles) -> (Self, longhaul_core::telemetry::Sockets) {
        let (streams, sockets) = set.progress().sockets.read();
        let received = streams.iter().filter_map(|s| Some((s.stream, s.tcp?.tcpi_bytes_received()?)));
        let look = Self {
            at: Instant::now(),
            arrived: set.progress().received() + sockets.unread,
            received: received.collect(),
            out_of_order: sockets.counters.out_of_order,
            waited: set.transfer.waits.total(),
            cpu: set.transfer.cpu.total() + set.transfer.pipeline.cpu_time(),
            pressure: pressure.read(),
        };
        (look, sockets)
    }
}
