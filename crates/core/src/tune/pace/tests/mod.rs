//! The controller in virtual time, on a fluid path.

mod changing_paths;
mod competing_flows;
mod congestion;
mod held_rate;
mod simulated_path;

use super::congestion::least_pace;
use super::startup::ROOM;
use super::*;
use simulated_path::{MSS, Path, with_known_rate};
