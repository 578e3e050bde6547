//! Impairments behind the bottlenecks of a held link: delay, reordering, duplication, corruption.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::discipline::QueuedPacket;
use super::super::{Fate, Link, Time};
use super::{Departure, HeldEvent};
use crate::spec::{ImpairmentSpec, PacketShare};

/// Separates the tail's random numbers from those of other nodes with one seed.
const TAIL_SEED_STREAM: u64 = 4;

/// The running impairments.
#[derive(Debug)]
pub struct Tail {
    before: Link,
    /// One-way delay of each pair of hosts; the first applies to unlisted pairs.
    delays: Vec<Duration>,
    impairments: ImpairmentSpec,
    /// Last departure of each pair.
    last: Vec<Time>,
    random: ChaCha8Rng,
}

impl Tail {
    /// Creates the delays of pairs of hosts, and what else happens to packets behind the nodes of
    /// `before`, whose losses are those of `impairments`; all are a function of `seed`.
    pub fn new(before: Link, delays: Vec<Duration>, impairments: ImpairmentSpec, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(TAIL_SEED_STREAM);
        let last = vec![Time::START; delays.len().max(1)];
        Self { before, delays, impairments, last, random }
    }

    pub(super) fn least_delay(&self) -> Duration {
        let least = self.delays.iter().min().copied().unwrap_or_default();
        least.saturating_sub(self.impairments.jitter.get())
    }

    /// Returns the fate of a packet that leaves the last bottleneck at `now`.
    pub(super) fn pass(&mut self, now: Time, packet: &QueuedPacket) -> HeldEvent {
        let released = match self.before.pass(now, packet.size) {
            Fate::Leaves(at) => at,
            Fate::Dropped(cause) => return HeldEvent::Dropped { id: packet.id, cause },
        };
        let (at, is_reordered) = self.arrival(released, packet.pair);
        HeldEvent::Leaves(Departure {
            id: packet.id,
            at,
            sojourn: now.since(packet.entered),
            is_marked: packet.is_marked,
            is_corrupted: self.happens(self.impairments.corrupt),
            is_doubled: self.happens(self.impairments.duplicate),
            is_reordered,
        })
    }

    /// Returns the time of arrival of a packet that departs at `from`, and whether it is reordered.
    fn arrival(&mut self, from: Time, pair: u16) -> (Time, bool) {
        let index = usize::from(pair).min(self.last.len() - 1);
        let delay = self.delays.get(index).copied().unwrap_or_default();
        let (jitter, reorder) = (self.impairments.jitter.get(), self.impairments.reorder);
        let spread = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2);
        let earliest = from + delay.saturating_sub(jitter);
        let extra = if spread > 0 { self.random.random_range(0..=spread) } else { 0 };
        let at = self.last[index].max(earliest + Duration::from_nanos(extra));
        if self.happens(reorder.share) {
            // Later packets do not wait for a reordered one.
            return (at + reorder.by, true);
        }
        self.last[index] = at;
        (at, false)
    }

    fn happens(&mut self, share: PacketShare) -> bool {
        share.get() > 0.0 && self.random.random_bool(share.get())
    }
}
