//! Longhaul's instruments: what is seen of a transfer is recorded, and drawn.
//!
//! [`record`] is a file of what a transfer told; [`chart`] says what is to be drawn, whatever it is.

pub mod chart;
pub mod record;
