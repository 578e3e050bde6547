//! ACK compression: acknowledgements queue in a switch, leave together, and release bursts of data.

use std::time::Duration;

use longhaul_core::units::Bytes;

use super::{Fate, Node, Time};

/// Packets up to this size count as pure acknowledgements: IPv6 and TCP headers with all options
/// have 100 bytes.
const MAX_ACK: Bytes = Bytes::new(120);

/// Holds small packets until the next multiple of a period since the link's start, and releases
/// them together.
///
/// A larger packet behind a held one waits too: packets keep their order.
#[derive(Debug)]
pub struct AckCompression {
    period: u64,
    /// Departure of the last packet.
    last: Time,
}

impl AckCompression {
    /// Creates a node that releases acknowledgements every `period` (at least 1 ns).
    pub fn new(period: Duration) -> Self {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { period, last: Time::START }
    }
}

impl Node for AckCompression {
    fn pass(&mut self, now: Time, size: Bytes) -> Fate {
        let leaves = if size <= MAX_ACK {
            Time::from_nanos(now.as_nanos().div_ceil(self.period).saturating_mul(self.period))
        } else {
            now
        };
        self.last = self.last.max(leaves);
        Fate::Leaves(self.last)
    }
}
