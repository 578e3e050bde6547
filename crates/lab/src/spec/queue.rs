//! How much the bottleneck's queue holds.

use std::fmt;
use std::str::FromStr;

use longhaul_core::units::{Bytes, ParseUnitError};

/// A queue's limit, written "250MB" or "1000p".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// In bytes at the IP layer.
    Bytes(Bytes),
    /// In packets of any size.
    Packets(u64),
}

impl QueueLimit {
    pub(super) fn holds_nothing(self, mtu: Bytes) -> bool {
        match self {
            Self::Bytes(bytes) => bytes < mtu,
            Self::Packets(packets) => packets == 0,
        }
    }
}

impl FromStr for QueueLimit {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().strip_suffix('p').and_then(|number| number.trim().parse().ok()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_queues_in_bytes_and_packets() {
        assert_eq!("250MB".parse(), Ok(QueueLimit::Bytes(Bytes::new(250_000_000))));
        assert_eq!("1000p".parse(), Ok(QueueLimit::Packets(1000)));
        for text in ["p", "-1p", "1.5p", "many", ""] {
            assert!(text.parse::<QueueLimit>().is_err(), "{text}");
        }
    }
}
