//! The pacer in virtual time, on a simulated fluid path.

mod changing_paths;
mod competing_flows;
mod congestion;
mod held_rate;
mod simulated_path;
mod trains;

use super::*;
use simulated_path::{MSS, SimulatedPath, with_known_rate};
