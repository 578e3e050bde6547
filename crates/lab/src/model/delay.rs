//! The propagation delay, which may vary per packet.

use std::time::Duration;

use longhaul_core::units::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Fate, Node, Time};

/// Separates this node's random numbers from those of other nodes with one seed.
const JITTER_SEED_STREAM: u64 = 3;

/// Delays packets by a uniform time between `delay - jitter` and `delay + jitter`; packets keep
/// their order.
#[derive(Debug)]
pub struct Delay {
    least: Duration,
    spread_nanos: u64,
    last: Time,
    random: ChaCha8Rng,
}

impl Delay {
    /// Creates a one-way delay; `jitter` must not exceed `delay`. Delays are a function of `seed`.
    pub fn new(delay: Duration, jitter: Duration, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(JITTER_SEED_STREAM);
        let spread = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2);
        Self { least: delay.saturating_sub(jitter), spread_nanos: spread, last: Time::START, random }
    }
}

impl Node for Delay {
    fn pass(&mut self, now: Time, _: Bytes) -> Fate {
        let extra = Duration::from_nanos(self.random.random_range(0..=self.spread_nanos));
        self.last = self.last.max(now + self.least + extra);
        Fate::Leaves(self.last)
    }
}
