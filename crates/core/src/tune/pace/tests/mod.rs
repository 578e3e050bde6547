//! The controller in virtual time, on a fluid path.

mod cuts;
mod follows;
mod knows;
mod path;
mod shares;

use super::begin::ROOM;
use super::cut::least_pace;
use super::*;
use path::{MSS, Path, knowing};
