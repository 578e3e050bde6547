//! Impairments behind the bottlenecks of a held link: delay, reordering, duplication, corruption.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::discipline::QueuedPacket;
use super::super::{Fate, Link, Time};
use super::HeldEvent;

/// Separates the tail's random numbers from those of other nodes with one seed.
const TAIL_SEED_STREAM: u64 = 4;

/// Impairments behind the bottlenecks; none by default. Shares are from 0 to 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Impairments {
    /// One-way delay of each pair of hosts; the first applies to unlisted pairs.
    pub delays: Vec<Duration>,
    /// Maximum deviation of delays, up and down. Packets of a pair keep their order.
    pub jitter: Duration,
    /// Share of packets that are delayed further, so that others overtake them.
    pub reordered: f64,
    /// Additional delay of reordered packets.
    pub reordered_by: Duration,
    /// Share of packets that arrive twice.
    pub duplicated: f64,
    /// Share of packets with one flipped bit.
    pub corrupted: f64,
}

/// The running impairments.
#[derive(Debug)]
pub struct Tail {
    before: Link,
    impairments: Impairments,
    /// Last departure of each pair.
    last: Vec<Time>,
    random: ChaCha8Rng,
}

impl Tail {
    /// Creates the running impairments, which follow the nodes of `before`; they are a function of `seed`.
    pub fn new(before: Link, impairments: Impairments, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(TAIL_SEED_STREAM);
        let last = vec![Time::START; impairments.delays.len().max(1)];
        Self { before, impairments, last, random }
    }

    pub(super) fn least_delay(&self) -> Duration {
        let least = self.impairments.delays.iter().min().copied().unwrap_or_default();
        least.saturating_sub(self.impairments.jitter)
    }

    /// Returns the fate of a packet that leaves the last bottleneck at `now`.
    pub(super) fn pass(&mut self, now: Time, packet: &QueuedPacket) -> HeldEvent {
        let released = match self.before.pass(now, packet.size) {
            Fate::Leaves(at) => at,
            Fate::Dropped(cause) => return HeldEvent::Dropped { id: packet.id, cause },
        };
        let (at, is_reordered) = self.arrival(released, packet.pair);
        HeldEvent::Leaves {
            id: packet.id,
            at,
            sojourn: now.since(packet.entered),
            is_marked: packet.is_marked,
            is_corrupted: self.happens(self.impairments.corrupted),
            is_doubled: self.happens(self.impairments.duplicated),
            is_reordered,
        }
    }

    /// Returns the time of arrival of a packet that departs at `from`, and whether it is reordered.
    fn arrival(&mut self, from: Time, pair: u16) -> (Time, bool) {
        let index = usize::from(pair).min(self.last.len() - 1);
        let Impairments { delays, jitter, reordered, reordered_by, .. } = &self.impairments;
        let delay = delays.get(index).copied().unwrap_or_default();
        let spread = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2);
        let (reordered, held_back) = (*reordered, *reordered_by);
        let earliest = from + delay.saturating_sub(*jitter);
        let extra = if spread > 0 { self.random.random_range(0..=spread) } else { 0 };
        let at = self.last[index].max(earliest + Duration::from_nanos(extra));
        if self.happens(reordered) {
            // Later packets do not wait for a reordered one.
            return (at + held_back, true);
        }
        self.last[index] = at;
        (at, false)
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random_bool(share.min(1.0))
    }
}
