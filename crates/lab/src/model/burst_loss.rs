//! Burst loss: the two-state model of Gilbert and Elliott.

use longhaul_core::units::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{DropCause, Fate, Node, Time};

/// Probabilities per packet, each from 0 to 1; the parameter names are those of netem's `gemodel`
/// (tc-netem(8)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// `p`: transition from the good to the bad state.
    pub to_bad: f64,
    /// `r`: transition from the bad to the good state; the mean burst has 1/r packets.
    pub to_good: f64,
    /// `1-h`: loss in the bad state.
    pub loss_in_bad: f64,
    /// `1-k`: loss in the good state.
    pub loss_in_good: f64,
}

impl GilbertElliott {
    /// Returns the long-term loss rate (Elliott, 1963: the states last 1/r and 1/p packets on
    /// average).
    pub fn mean_loss(&self) -> f64 {
        let Self { to_bad, to_good, loss_in_bad, loss_in_good } = *self;
        let changes = to_bad + to_good;
        let bad = if changes > 0.0 { to_bad / changes } else { 0.0 };
        bad * loss_in_bad + (1.0 - bad) * loss_in_good
    }
}

/// Drops packets in bursts.
#[derive(Debug)]
pub struct BurstLoss {
    parameters: GilbertElliott,
    is_bad: bool,
    random: ChaCha8Rng,
}

impl BurstLoss {
    /// Creates a node in the good state; its losses are a function of `seed`. Clamps probabilities
    /// to 0 to 1.
    pub fn new(parameters: GilbertElliott, seed: u64) -> Self {
        let probability = |value: f64| if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
        let GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good } = parameters;
        let parameters = GilbertElliott {
            to_bad: probability(to_bad),
            to_good: probability(to_good),
            loss_in_bad: probability(loss_in_bad),
            loss_in_good: probability(loss_in_good),
        };
        Self { parameters, is_bad: false, random: ChaCha8Rng::seed_from_u64(seed) }
    }
}

impl Node for BurstLoss {
    /// The state changes after the packet, as in netem (`loss_gilb_ell` in net/sched/sch_netem.c).
    fn pass(&mut self, now: Time, _size: Bytes) -> Fate {
        let GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good } = self.parameters;
        let (change, loss) = if self.is_bad { (to_good, loss_in_bad) } else { (to_bad, loss_in_good) };
        self.is_bad ^= self.random.random_bool(change);
        if self.random.random_bool(loss) { Fate::Dropped(DropCause::Loss) } else { Fate::Leaves(now) }
    }
}
