//! Longhaul's tuner: requests the whole file, and decides about once per RTT.

use std::time::Duration;

use longhaul_core::tune::streams::{CountTuner, Interval, StreamTuner};

use super::Tuner;

impl Tuner for StreamTuner {
    fn streams(&self) -> usize {
        CountTuner::streams(self)
    }

    fn observe(&mut self, seen: &Interval, now: Duration) -> usize {
        CountTuner::observe(self, seen, now)
    }
}
