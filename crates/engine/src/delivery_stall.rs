//! The rule by which a connection that delivers has stalled: less than [`MIN_DELIVERY`] within the
//! stall timeout.

use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;

/// A connection that delivers less than this within the stall timeout counts as stalled.
pub(crate) const MIN_DELIVERY: Bytes = Bytes::kib(1);

/// Counts the bytes of one connection within a stall timeout.
#[derive(Debug)]
pub(crate) struct DeliveryStall {
    since: Instant,
    bytes: Bytes,
}

impl DeliveryStall {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, bytes: Bytes::ZERO }
    }

    pub(crate) fn add(&mut self, bytes: Bytes) {
        self.bytes += bytes;
    }

    /// Excludes a time without reads of the socket.
    pub(crate) fn exclude(&mut self, time: Duration) {
        self.since += time;
    }

    /// Returns whether less than [`MIN_DELIVERY`] arrived during the last `patience`.
    pub(crate) fn has_stalled(&mut self, patience: Duration, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) < patience {
            return false;
        }
        let has_stalled = self.bytes < MIN_DELIVERY;
        *self = Self::new(now);
        has_stalled
    }
}
