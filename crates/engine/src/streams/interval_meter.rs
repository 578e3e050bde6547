//! Measures the streams of one peer per interval, for the control of their number.

use std::collections::HashMap;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::telemetry::Sockets;
use longhaul_core::tune::streams::Interval;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::pressure::{Pressure, PressureFiles};

use super::stream_set::StreamSet;
use crate::transfer::Direction;

/// Measures the interval from one call to the next.
pub(super) struct IntervalMeter {
    rtt: Rtt,
    pressure: PressureFiles,
    before: CounterSnapshot,
}

/// Counters at one point in time.
struct CounterSnapshot {
    at: Instant,
    /// Bytes read and unread in sockets; for sending streams, bytes acknowledged.
    arrived: Bytes,
    /// Bytes moved by each stream.
    moved: HashMap<usize, u64>,
    /// Indications of loss: segments received out of order, or retransmitted.
    losses: u64,
    min_rtt: Option<Rtt>,
    /// The RTT measured on data, queues included.
    data_rtt: Option<Rtt>,
    /// The time that streams have waited for this host, summed over the streams.
    waited: Duration,
    cpu: Duration,
    pressure: Pressure,
}

/// Streams that wait for this host for this share of the time are limited by the host.
const HELD_BACK: f64 = 0.1;
/// A job that uses this share of all cores is limited by the host.
const BUSY: f64 = 0.85;

impl IntervalMeter {
    /// Starts the first interval, on a path of this RTT.
    pub(super) fn new<D: Direction>(rtt: Rtt, set: &StreamSet<'_, D>) -> Self {
        let pressure = PressureFiles::find();
        let before = CounterSnapshot::now(set, &pressure);
        Self { rtt, pressure, before }
    }

    /// Returns the length of an interval.
    pub(super) fn interval(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(100);
        self.rtt.get().max(SHORTEST)
    }

    /// Ends an interval and starts the next.
    pub(super) fn look<D: Direction>(&mut self, set: &StreamSet<'_, D>) -> Interval {
        let before = std::mem::replace(&mut self.before, CounterSnapshot::now(set, &self.pressure));
        let now = &self.before;
        self.rtt = now.min_rtt.map_or(self.rtt, |rtt| rtt.min(self.rtt));
        let time = now.at.saturating_duration_since(before.at);
        // A reconnected stream's counter restarts, so any change counts, not only growth.
        let carried = |(stream, moved): &(&usize, &u64)| before.moved.get(stream).unwrap_or(&0) != *moved;
        let streams = now.moved.iter().filter(carried).count();
        let share = |spent: Duration, of: usize| {
            spent.as_secs_f64() / (time.as_secs_f64() * of.max(1) as f64).max(1e-9)
        };
        let cores = available_parallelism().map_or(1, usize::from);
        let held_back = share(now.waited.saturating_sub(before.waited), streams) > HELD_BACK
            || share(now.cpu.saturating_sub(before.cpu), cores) > BUSY;
        Interval {
            goodput: Rate::over(now.arrived - before.arrived, time),
            rtt: self.rtt,
            data_rtt: now.data_rtt,
            streams,
            out_of_order: now.losses.saturating_sub(before.losses),
            left: set.round.schedule.left(),
            held_back,
            pressure: share(now.pressure.since(&before.pressure), 1),
        }
    }
}

impl CounterSnapshot {
    fn now<D: Direction>(set: &StreamSet<'_, D>, pressure: &PressureFiles) -> Self {
        let (streams, Sockets { counters, unread, times, .. }) = set.progress().sockets.read();
        let moved =
            |tcp: TcpInfo| if D::RECEIVES { tcp.tcpi_bytes_received() } else { tcp.tcpi_bytes_acked() };
        let transfer = set.round.transfer;
        Self {
            at: Instant::now(),
            arrived: if D::RECEIVES { set.progress().received() + unread } else { counters.acked },
            moved: streams.iter().filter_map(|s| Some((s.stream, moved(s.tcp?)?))).collect(),
            losses: if D::RECEIVES { counters.out_of_order } else { counters.retransmits },
            min_rtt: times.min_rtt,
            data_rtt: if D::RECEIVES { times.data_rtt } else { times.rtt },
            waited: transfer.waits.total(),
            cpu: transfer.cpu.total() + D::cpu_time(&set.round.inlet),
            pressure: pressure.read(),
        }
    }
}
