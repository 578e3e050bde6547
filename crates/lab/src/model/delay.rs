//! Constant propagation delay.

use std::time::Duration;

use longhaul_core::units::Bytes;

use super::{Fate, Node, Time};

/// Delays all packets by a constant time.
#[derive(Debug)]
pub struct Delay(Duration);

impl Delay {
    /// Creates a one-way delay.
    pub fn new(one_way: Duration) -> Self {
        Self(one_way)
    }
}

impl Node for Delay {
    fn pass(&mut self, now: Time, _size: Bytes) -> Fate {
        Fate::Leaves(now + self.0)
    }
}
