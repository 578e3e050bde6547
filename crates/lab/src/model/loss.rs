//! Independent random loss.

use longhaul_core::units::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{DropCause, Fate, Node, Time};

/// Drops packets independently with one probability.
#[derive(Debug)]
pub struct RandomLoss {
    share: f64,
    random: ChaCha8Rng,
}

impl RandomLoss {
    /// Creates a node that drops the `share` (0 to 1, clamped) of packets; drops are a function of
    /// `seed`.
    pub fn new(share: f64, seed: u64) -> Self {
        Self { share: share.clamp(0.0, 1.0), random: ChaCha8Rng::seed_from_u64(seed) }
    }
}

impl Node for RandomLoss {
    fn pass(&mut self, now: Time, _size: Bytes) -> Fate {
        if self.random.random_bool(self.share) { Fate::Dropped(DropCause::Loss) } else { Fate::Leaves(now) }
    }
}
