//! Why a capture cannot be explained.

use std::io;
use std::path::PathBuf;

/// Reading a capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It cannot be read.
    #[error("cannot read the capture {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no capture: {why}; write one with tcpdump -w FILE, or dumpcap", path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// By what that is seen.
        why: String,
    },
    /// Its packets are of a link that is not known.
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
    /// No TCP connection in it has moved a byte.
    #[error(
        "no TCP connection in {} has data: of {packets} packets {others} are of another protocol, or cut within their headers; \
         capture TCP with at least the first 128 bytes of each packet (tcpdump -s 128)",
        path.display()
    )]
    NoData {
        /// The file.
        path: PathBuf,
        /// Its packets.
        packets: u64,
        /// Those that are no whole TCP header.
        others: u64,
    },
}

/// The kinds of [`CaptureError`] that a caller tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureErrorKind {
    /// There is no such file, or none that may be read.
    NoInput,
    /// It is no capture, or none that says anything.
    Data,
}

impl CaptureError {
    /// Returns its kind.
    pub fn kind(&self) -> CaptureErrorKind {
        match self {
            Self::Read { .. } => CaptureErrorKind::NoInput,
            Self::NotACapture { .. } | Self::UnknownLink { .. } | Self::NoData { .. } => {
                CaptureErrorKind::Data
            }
        }
    }
}
