//! DropTail: a queue that drops arriving packets only when it is full.

use longhaul_core::units::Bytes;

use super::{Admission, Backlog, Time};

/// Admits a packet if the queue including it stays within a limit in bytes or packets.
///
/// The packet in transmission counts as queued until its last bit is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropTail {
    /// Maximum bytes.
    Bytes(Bytes),
    /// Maximum packets, of any size.
    Packets(u64),
}

impl DropTail {
    /// Returns whether a packet of `size` bytes may join `backlog`; with `size` zero, whether `backlog` is within the limit.
    pub(super) fn holds(self, backlog: Backlog, size: Bytes) -> bool {
        let more = u64::from(size > Bytes::ZERO);
        match self {
            Self::Bytes(limit) => backlog.bytes + size <= limit,
            Self::Packets(limit) => backlog.packets + more <= limit,
        }
    }
}

impl Admission for DropTail {
    fn admits(&mut self, _now: Time, backlog: Backlog, size: Bytes) -> bool {
        self.holds(backlog, size.max(Bytes::new(1)))
    }
}
