//! ACK compression: acknowledgements that were spread out leave a switch together, and release bursts of data.

use std::time::Duration;

use longhaul_core::units::Bytes;

use super::{Fate, Node, Time};

/// The longest packet that is taken for a pure acknowledgement: the largest headers of IPv6 and TCP with all options
/// are 100 bytes.
const LONGEST_ACK: Bytes = Bytes::new(120);

/// Holds small packets until the next multiple of a period, since the link's start, at which they leave together.
///
/// What comes behind a held packet waits for it, of whatever size: nothing overtakes.
#[derive(Debug)]
pub struct AckCompression {
    period: u64,
    /// When the last packet leaves.
    last: Time,
}

impl AckCompression {
    /// Makes a node that lets acknowledgements go once a `period` (at least 1 ns).
    pub fn new(period: Duration) -> Self {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { period, last: Time::START }
    }
}

impl Node for AckCompression {
    fn pass(&mut self, now: Time, size: Bytes) -> Fate {
        let leaves = if size <= LONGEST_ACK {
            Time::from_nanos(now.as_nanos().div_ceil(self.period).saturating_mul(self.period))
        } else {
            now
        };
        self.last = self.last.max(leaves);
        Fate::Leaves(self.last)
    }
}
