//! Longhaul's tuner: requests the whole file, and decides about once per RTT.

use std::time::Duration;

use longhaul_core::tune::streams::{Interval, StreamTuner};

use super::Tuner;

impl Tuner for StreamTuner {
    fn streams(&self) -> usize {
        Self::streams(self)
    }

    fn observe(&mut self, seen: &Interval, now: Duration) -> usize {
        Self::observe(self, seen, now)
    }
}
