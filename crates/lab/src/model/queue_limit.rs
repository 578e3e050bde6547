//! The size of a queue, which drops arriving packets only when it is full (DropTail).

use std::fmt;
use std::str::FromStr;

use longhaul_core::units::{Bytes, ParseUnitError};

use super::{AdmissionPolicy, Backlog, QueueVerdict, Time};

/// A queue's limit, written "250MB", "100packets" or "100p": a packet joins if the queue including
/// it stays within.
///
/// The packet in transmission counts as queued until its last bit is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// In bytes at the IP layer.
    Bytes(Bytes),
    /// In packets of any size.
    Packets(u64),
}

impl QueueLimit {
    /// Returns the number of packets of the largest size that the queue holds.
    pub(crate) fn in_packets(self, mtu: Bytes) -> f64 {
        match self {
            Self::Bytes(bytes) => bytes.get() as f64 / mtu.get() as f64,
            Self::Packets(packets) => packets as f64,
        }
    }

    /// Returns whether a packet of `size` bytes may join `backlog`; with `size` zero, whether
    /// `backlog` is within the limit.
    pub(super) fn holds(self, backlog: Backlog, size: Bytes) -> bool {
        let more = u64::from(size > Bytes::ZERO);
        match self {
            Self::Bytes(limit) => backlog.bytes + size <= limit,
            Self::Packets(limit) => backlog.packets + more <= limit,
        }
    }
}

impl AdmissionPolicy for QueueLimit {
    fn judge(&mut self, _now: Time, backlog: Backlog, size: Bytes) -> QueueVerdict {
        if self.holds(backlog, size.max(Bytes::new(1))) { QueueVerdict::Admitted } else { QueueVerdict::Full }
    }
}

impl FromStr for QueueLimit {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |unit| text.trim().strip_suffix(unit)?.trim().parse().ok();
        match ["packets", "packet", "p"].into_iter().find_map(number) {
            Some(packets) => Ok(Self::Packets(packets)),
            None => text.parse().map(Self::Bytes),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Packets(packets) => write!(f, "{packets} packets"),
        }
    }
}
