//! Errors of reading a capture.

use std::io;
use std::path::PathBuf;

use longhaul_core::failure::FailureKind;

/// A capture cannot be read or explained.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The capture file cannot be read.
    #[error("cannot read the capture {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a capture.
    #[error("{} is no capture: {why}; write one with tcpdump -w FILE, or dumpcap", path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// By what that is seen.
        why: String,
    },
    /// The link type of the packets is not supported.
    #[error(
        "the packets in {} are of link type {link}, which is not known: capture on an Ethernet interface or with tcpdump -i any",
        path.display()
    )]
    UnknownLink {
        /// The file.
        path: PathBuf,
        /// The number of the link type (tcpdump.org/linktypes.html).
        link: i32,
    },
    /// No TCP connection in the capture has data.
    #[error(
        "no TCP connection in {} has data: of {packets} packets {others} are of another protocol, or cut within their headers; \
         capture TCP with at least the first 128 bytes of each packet (tcpdump -s 128)",
        path.display()
    )]
    NoData {
        /// The file.
        path: PathBuf,
        /// Packets in the capture.
        packets: u64,
        /// Packets without a whole TCP header.
        others: u64,
    },
}

impl CaptureError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Read { .. } => FailureKind::NotFound,
            Self::NotACapture { .. } | Self::UnknownLink { .. } | Self::NoData { .. } => FailureKind::Data,
        }
    }
}
