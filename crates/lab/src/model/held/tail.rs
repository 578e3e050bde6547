//! What comes behind the bottlenecks of a held link: losses, delays, and packets that do not keep their order.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::discipline::QueuedPacket;
use super::super::{AckCompression, BurstLoss, Cause, Fate, GilbertElliott, Node, RandomLoss, Time};
use super::HeldEvent;

/// Keeps its random numbers apart from those of other parts that are given the same seed.
const TAIL_SEED_STREAM: u64 = 4;

/// What happens to packets behind the bottlenecks; nothing by default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Impairments {
    /// The share of packets lost at random, 0 to 1 as all shares.
    pub loss: f64,
    /// Losses in bursts.
    pub burst_loss: Option<GilbertElliott>,
    /// The period at which acknowledgements leave together; zero: they do not.
    pub ack_compression: Duration,
    /// The delay one way of each pair of hosts; the first holds for pairs that are not listed.
    pub delays: Vec<Duration>,
    /// By how much delays vary, up and down. Packets of a pair keep their order.
    pub jitter: Duration,
    /// The share of packets that are held back, so that others overtake them.
    pub reordered: f64,
    /// How long those are held back.
    pub reordered_by: Duration,
    /// The share of packets that arrive twice.
    pub duplicated: f64,
    /// The share of packets of which a bit is flipped.
    pub corrupted: f64,
}

/// The impairments as they happen.
#[derive(Debug)]
pub struct Tail {
    losses: Vec<Box<dyn Node>>,
    acks: Option<AckCompression>,
    impairments: Impairments,
    /// When the last packet of each pair leaves.
    last: Vec<Time>,
    random: ChaCha8Rng,
}

impl Tail {
    /// Makes them of `impairments`; the same for the same `seed`.
    pub fn new(impairments: Impairments, seed: u64) -> Self {
        let mut losses: Vec<Box<dyn Node>> = Vec::new();
        if impairments.loss > 0.0 {
            losses.push(Box::new(RandomLoss::new(impairments.loss, seed)));
        }
        if let Some(parameters) = impairments.burst_loss {
            losses.push(Box::new(BurstLoss::new(parameters, !seed)));
        }
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(TAIL_SEED_STREAM);
        let period = impairments.ack_compression;
        Self {
            losses,
            acks: (!period.is_zero()).then(|| AckCompression::new(period)),
            last: vec![Time::START; impairments.delays.len().max(1)],
            impairments,
            random,
        }
    }

    pub(super) fn least_delay(&self) -> Duration {
        let least = self.impairments.delays.iter().min().copied().unwrap_or_default();
        least.saturating_sub(self.impairments.jitter)
    }

    /// Says what becomes of a packet that is out of the last bottleneck at `now`.
    pub(super) fn pass(&mut self, now: Time, packet: &QueuedPacket) -> HeldEvent {
        for node in &mut self.losses {
            if node.pass(now, packet.size) == Fate::Dropped(Cause::Loss) {
                return HeldEvent::Dropped { id: packet.id, cause: Cause::Loss };
            }
        }
        let released = match self.acks.as_mut().map(|acks| acks.pass(now, packet.size)) {
            Some(Fate::Leaves(at)) => at,
            _ => now,
        };
        let at = self.arrival(released, packet.pair);
        HeldEvent::Leaves {
            id: packet.id,
            at,
            sojourn: now.since(packet.came),
            is_marked: packet.is_marked,
            is_corrupted: self.happens(self.impairments.corrupted),
            is_doubled: self.happens(self.impairments.duplicated),
        }
    }

    fn arrival(&mut self, from: Time, pair: u16) -> Time {
        let index = usize::from(pair).min(self.last.len() - 1);
        let Impairments { delays, jitter, reordered, reordered_by, .. } = &self.impairments;
        let delay = delays.get(index).copied().unwrap_or_default();
        let spread = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2);
        let (reordered, held_back) = (*reordered, *reordered_by);
        let earliest = from + delay.saturating_sub(*jitter);
        let extra = if spread > 0 { self.random.random_range(0..=spread) } else { 0 };
        let at = self.last[index].max(earliest + Duration::from_nanos(extra));
        if self.happens(reordered) {
            // Those behind it do not wait for it.
            return at + held_back;
        }
        self.last[index] = at;
        at
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random_bool(share.min(1.0))
    }
}
