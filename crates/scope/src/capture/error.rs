//! Errors of reading a capture.

use std::io;
use std::path::PathBuf;

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

/// Classes of [`CaptureError`] with different exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureErrorKind {
    /// The file does not exist or is not readable.
    NoInput,
    /// The file is not a capture or holds no data.
    Data,
}

impl CaptureError {
    /// Returns the class of the error.
    pub fn kind(&self) -> CaptureErrorKind {
        match self {
            Self::Read { .. } => CaptureErrorKind::NoInput,
            Self::NotACapture { .. } | Self::UnknownLink { .. } | Self::NoData { .. } => {
                CaptureErrorKind::Data
            }
        }
    }
}
