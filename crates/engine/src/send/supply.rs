//! The bytes of one file range to send, from either reader.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use rustix::fs::{Advice, fadvise};

use super::read_ahead::{ReadAhead, RingUsage};
use super::{Outgoing, Piece, Reader, SendError, SourceFile, Turn};
use crate::tree_digest::TreeDigest;

/// A range of a file to send.
pub enum Supply {
    /// sendfile from the page cache.
    PageCache(Outgoing),
    /// send(2) from blocks that are read ahead.
    Direct(ReadAhead),
}

impl Supply {
    /// Opens `range` of `source` for reading by `reader`; blocks read into memory of this process
    /// are added to `tree`.
    ///
    /// # Errors
    /// See [`ReadAhead::start`].
    pub fn open(
        source: &Arc<SourceFile>,
        reader: Reader,
        range: ByteRange,
        tree: Option<&Arc<TreeDigest>>,
    ) -> io::Result<Self> {
        let source = Arc::clone(source);
        Ok(match reader {
            Reader::PageCache { drop_behind } => {
                if drop_behind {
                    // Only a hint: the kernel reads a cold file further ahead.
                    let _ = fadvise(source.file(), range.start(), None, Advice::Sequential);
                }
                let (start, length) = (Bytes::new(range.start()), range.len());
                Self::PageCache(Outgoing::new([Piece::File { source, start, length }]))
            }
            Reader::Direct { alignment } => Self::Direct(ReadAhead::start(source, alignment, range, tree)?),
        })
    }

    /// Moves at most `share` bytes into `socket` unencrypted.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn turn(&mut self, socket: impl AsFd, share: Bytes) -> Result<Turn, SendError> {
        match self {
            Self::PageCache(outgoing) => outgoing.turn_of(socket, share),
            Self::Direct(ahead) => ahead.turn(socket, share),
        }
    }

    /// Appends the next bytes, at most `limit`, to `buffer`, for encryption.
    ///
    /// # Errors
    /// [`SendError`]; `buffer` must then not be sent.
    pub fn fill(&mut self, buffer: &mut Vec<u8>, limit: Bytes) -> Result<(), SendError> {
        match self {
            Self::PageCache(outgoing) => outgoing.fill(buffer, limit),
            Self::Direct(ahead) => ahead.fill(buffer, limit),
        }
    }

    /// Returns whether nothing is left to send.
    pub fn is_done(&self) -> bool {
        match self {
            Self::PageCache(outgoing) => outgoing.is_done(),
            Self::Direct(ahead) => ahead.is_done(),
        }
    }

    /// Returns how many bytes were sent.
    pub fn sent(&self) -> Bytes {
        match self {
            Self::PageCache(outgoing) => outgoing.sent(),
            Self::Direct(ahead) => ahead.sent(),
        }
    }

    /// Returns how long the sender waited for the device since the last call, if measured.
    pub fn take_waited(&mut self) -> Duration {
        match self {
            Self::PageCache(_) => Duration::ZERO,
            Self::Direct(ahead) => ahead.take_waited(),
        }
    }

    /// Returns the use of the ring, if there is one.
    pub fn ring(&self) -> Option<RingUsage> {
        match self {
            Self::PageCache(_) => None,
            Self::Direct(ahead) => Some(ahead.usage()),
        }
    }
}
