//! The size of the bottleneck's queue.

use std::fmt;
use std::str::FromStr;

use longhaul_core::units::{Bytes, ParseUnitError};

/// A queue's limit, written "250MB", "100packets" or "100p".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// In bytes at the IP layer.
    Bytes(Bytes),
    /// In packets of any size.
    Packets(u64),
}

impl QueueLimit {
    pub(super) fn holds_nothing(self, mtu: Bytes) -> bool {
        self.in_packets(mtu) < 1.0
    }

    /// Returns the number of packets of the largest size that it holds.
    pub(super) fn in_packets(self, mtu: Bytes) -> f64 {
        match self {
            Self::Bytes(bytes) => bytes.get() as f64 / mtu.get() as f64,
            Self::Packets(packets) => packets as f64,
        }
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
