//! Observations of a direction: its flows, and its queue over time.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use crate::model::{Backlog, DropCause, Time};
use crate::wire::FlowKey;

/// Maximum of distinct flows; further ones are counted together.
const MAX_FLOWS: usize = 10_000;
/// Maximum of samples; beyond it, pairs of samples are merged.
const MAX_SAMPLES: usize = 4_000;
/// Interval of the first samples.
const FIRST_INTERVAL: Duration = Duration::from_millis(1);

/// The packets of a flow in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowStats {
    /// Packets that hosts sent.
    pub packets: u64,
    /// Bytes of these packets at the IP layer.
    pub bytes: Bytes,
    /// Packets that the queue dropped.
    pub dropped_queue: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets that the queue marked.
    pub marked: u64,
    /// Time from the link's start to the first packet.
    pub first: Duration,
    /// Time from the link's start to the last packet.
    pub last: Duration,
}

impl FlowStats {
    /// Returns the flow's mean sending rate from its first packet to its last.
    pub fn rate(&self) -> Rate {
        Rate::over(self.bytes, self.last.saturating_sub(self.first))
    }
}

/// The queue during an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueSample {
    /// Start of the interval, from the link's start.
    pub from: Duration,
    /// Maximum of queued bytes, including the packet in transmission.
    pub bytes: Bytes,
    /// Maximum of queued packets.
    pub packets: u64,
    /// Maximum time of a packet in queues and in transmission.
    pub sojourn: Duration,
    /// Bytes received.
    pub arrived: Bytes,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets marked.
    pub marked: u64,
}

/// Flows and queue of a direction over time.
#[derive(Debug, Clone, Default)]
pub struct DirectionEvidence {
    /// Statistics per flow; `None` for non-IP packets and for flows beyond the first 10,000.
    pub flows: BTreeMap<Option<FlowKey>, FlowStats>,
    /// Samples by time; intervals without a packet are omitted.
    pub queue: Vec<QueueSample>,
    /// Length of a sample's interval.
    pub interval: Duration,
}

impl DirectionEvidence {
    /// Counts packets of a flow, `bytes` in total, and the queue after their arrival.
    pub(crate) fn arrived(
        &mut self,
        now: Time,
        flow: Option<FlowKey>,
        packets: u64,
        bytes: Bytes,
        backlog: Backlog,
    ) {
        let at = now.since(Time::START);
        let stats = self.flow(flow);
        if stats.packets == 0 {
            stats.first = at;
        }
        stats.packets += packets;
        stats.bytes += bytes;
        stats.last = at;
        self.sample(now).arrived += bytes;
        self.queued(now, backlog);
    }

    pub(crate) fn queued(&mut self, now: Time, backlog: Backlog) {
        let sample = self.sample(now);
        sample.bytes = sample.bytes.max(backlog.bytes);
        sample.packets = sample.packets.max(backlog.packets);
    }

    pub(crate) fn dropped(&mut self, now: Time, flow: Option<FlowKey>, cause: DropCause) {
        let stats = self.flow(flow);
        match cause {
            DropCause::Queue => stats.dropped_queue += 1,
            DropCause::Loss => stats.dropped_loss += 1,
        }
        if cause == DropCause::Queue {
            self.sample(now).dropped += 1;
        }
    }

    pub(crate) fn waited(&mut self, now: Time, sojourn: Duration) {
        let sample = self.sample(now);
        sample.sojourn = sample.sojourn.max(sojourn);
    }

    pub(crate) fn marked(&mut self, now: Time, flow: Option<FlowKey>) {
        self.flow(flow).marked += 1;
        self.sample(now).marked += 1;
    }

    fn flow(&mut self, flow: Option<FlowKey>) -> &mut FlowStats {
        let is_known = self.flows.len() < MAX_FLOWS || self.flows.contains_key(&flow);
        self.flows.entry(flow.filter(|_| is_known)).or_default()
    }

    fn sample(&mut self, now: Time) -> &mut QueueSample {
        if self.interval.is_zero() {
            self.interval = FIRST_INTERVAL;
        }
        if self.queue.len() >= MAX_SAMPLES {
            self.halve();
        }
        let at = now.since(Time::START);
        let from = start_of(at, self.interval);
        // A held link reports events in order, but one may share its time with another packet's.
        if self.queue.last().is_none_or(|last| last.from < from) {
            self.queue.push(QueueSample { from, ..QueueSample::default() });
        }
        let last = self.queue.len() - 1;
        &mut self.queue[last]
    }

    /// Doubles the interval and merges pairs of samples.
    fn halve(&mut self) {
        self.interval *= 2;
        let mut merged: Vec<QueueSample> = Vec::with_capacity(self.queue.len() / 2 + 1);
        for sample in &self.queue {
            let from = start_of(sample.from, self.interval);
            match merged.last_mut().filter(|last| last.from == from) {
                Some(last) => last.add(sample),
                None => merged.push(QueueSample { from, ..*sample }),
            }
        }
        self.queue = merged;
    }
}

impl QueueSample {
    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.max(other.bytes);
        self.packets = self.packets.max(other.packets);
        self.sojourn = self.sojourn.max(other.sojourn);
        self.arrived += other.arrived;
        self.dropped += other.dropped;
        self.marked += other.marked;
    }
}

fn start_of(at: Duration, interval: Duration) -> Duration {
    let nanos = at.as_nanos() / interval.as_nanos().max(1) * interval.as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_few_and_keep_their_peaks_and_sums() {
        let mut evidence = DirectionEvidence::default();
        for milli in 0..100_000_u64 {
            let now = Time::from_nanos(milli * 1_000_000);
            let backlog = Backlog { bytes: Bytes::new(milli % 1000), packets: 1, ..Backlog::default() };
            evidence.arrived(now, None, 1, Bytes::new(1500), backlog);
            evidence.waited(now, Duration::from_micros(milli % 777));
        }
        let samples = || evidence.queue.iter();
        let count = samples().count();
        assert!((MAX_SAMPLES / 2..=MAX_SAMPLES).contains(&count), "{count}");
        assert_eq!(samples().map(|sample| sample.arrived.get()).sum::<u64>(), 150_000_000);
        assert_eq!(samples().map(|sample| sample.bytes.get()).max(), Some(999));
        assert_eq!(samples().map(|sample| sample.sojourn.as_micros()).max(), Some(776));
        assert!(evidence.queue.is_sorted_by_key(|sample| sample.from));
        assert_eq!(evidence.flows[&None].rate().as_bits_per_sec() / 1000, 12_000);
    }
}
