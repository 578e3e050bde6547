//! The pacer in virtual time: its invariants over arbitrary observations, and what it gains on a
//! simulated fluid path.

mod invariants;
mod lossless;
mod paths;
mod simulated_path;
mod trains;

use super::*;
use simulated_path::SimulatedPath;

/// Advances Knuth's MMIX generator.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state
}

fn mbit(rate: f64) -> Rate {
    Rate::bits_per_sec((rate * 1e6) as u64)
}
