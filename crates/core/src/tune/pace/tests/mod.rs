//! The pacer in virtual time: its invariants over arbitrary observations, and what it gains on a simulated fluid path.

mod invariants;
mod lossless;
mod paths;
mod simulated_path;
mod trains;

use super::*;
use simulated_path::SimulatedPath;

fn mbit(rate: f64) -> Rate {
    Rate::bits_per_sec((rate * 1e6) as u64)
}

/// Returns a pacer whose first cap is `cap`, as of false trains.
fn capped(cap: Rate) -> Pacer {
    Pacer::with_first_cap(cap)
}
