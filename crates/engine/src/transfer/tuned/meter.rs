//! Intervals of a transfer, as a chooser of the number of streams sees them.

use std::collections::HashMap;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use longhaul_core::tune::streams::Interval;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::host;

use crate::transfer::shared::Shared;

/// Measures from one look to the next.
pub(super) struct Meter {
    rtt: Rtt,
    before: Look,
}

/// What has been counted at one moment.
struct Look {
    at: Instant,
    /// Read, and waiting in sockets.
    arrived: Bytes,
    /// By stream.
    received: HashMap<usize, u64>,
    out_of_order: u64,
    /// For how long streams have stood still for our sake, summed over the streams.
    waited: Duration,
    cpu: Duration,
}

/// Streams that stand still for this share of the time for our sake are held back by us.
const HELD_BACK: f64 = 0.1;
/// And so they are from this share of all cores on.
const BUSY: f64 = 0.85;

impl Meter {
    /// Starts the first interval of a path of this RTT.
    pub(super) fn new(rtt: Rtt, shared: &Shared<'_>) -> Self {
        Self { rtt, before: Look::now(shared).0 }
    }

    /// Starts the interval anew.
    pub(super) fn restart(&mut self, shared: &Shared<'_>) {
        self.before = Look::now(shared).0;
    }

    /// Returns how long an interval should be.
    pub(super) fn interval(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(100);
        self.rtt.get().max(SHORTEST)
    }

    /// Ends an interval and starts the next.
    pub(super) fn look(&mut self, shared: &Shared<'_>) -> Interval {
        let (now, sockets) = Look::now(shared);
        let before = std::mem::replace(&mut self.before, now);
        let now = &self.before;
        self.rtt = sockets.min_rtt.map_or(self.rtt, |rtt| rtt.min(self.rtt));
        let time = now.at.saturating_duration_since(before.at);
        // Less than before is a connection's that is new.
        let carried =
            |(stream, received): &(&usize, &u64)| before.received.get(stream).unwrap_or(&0) != *received;
        let streams = now.received.iter().filter(carried).count();
        let share = |spent: Duration, of: usize| {
            spent.as_secs_f64() / (time.as_secs_f64() * of.max(1) as f64).max(1e-9)
        };
        let cores = available_parallelism().map_or(1, usize::from);
        let held_back = share(now.waited.saturating_sub(before.waited), streams) > HELD_BACK
            || share(now.cpu.saturating_sub(before.cpu), cores) > BUSY;
        let pipeline = &shared.pipeline;
        let present = pipeline.resumed() + shared.received_so_far();
        Interval {
            goodput: Rate::over(now.arrived - before.arrived, time),
            rtt: self.rtt,
            data_rtt: sockets.data_rtt,
            streams,
            out_of_order: now.out_of_order.saturating_sub(before.out_of_order),
            left: pipeline.size().unwrap_or_default() - present,
            held_back,
        }
    }
}

impl Look {
    fn now(shared: &Shared<'_>) -> (Self, longhaul_core::telemetry::Sockets) {
        let (streams, sockets) = shared.sockets.read();
        let received = streams.iter().filter_map(|s| Some((s.stream, s.tcp?.tcpi_bytes_received()?)));
        let look = Self {
            at: Instant::now(),
            arrived: shared.received_so_far() + sockets.unread,
            received: received.collect(),
            out_of_order: sockets.counters.out_of_order,
            waited: shared.waits.so_far(),
            cpu: host::process_cpu_time(),
        };
        (look, sockets)
    }
}
