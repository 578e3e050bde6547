//! DropTail: a queue that drops packets only when it is full.

use longhaul_core::units::Bytes;

use super::{Admission, Backlog, Time};

/// Takes a packet where the queue, with it, stays within a limit in bytes or in packets.
///
/// The packet being sent counts as queued until its last bit is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropTail {
    /// At most this many bytes.
    Bytes(Bytes),
    /// At most this many packets, of any size.
    Packets(u64),
}

impl DropTail {
    /// Says whether a queue with `backlog` may take `size` bytes more, as one packet; with none, whether it is within the limit.
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
