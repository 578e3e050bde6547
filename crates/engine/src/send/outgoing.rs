//! A queue of texts and file ranges to send into a socket.

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_sys::cachestat::is_cached;
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};
use rustix::net::SendFlags;

use super::{SendError, SourceFile};

/// The maximum bytes that one [`Outgoing::turn`] moves, so that a fast peer does not starve others.
pub const TURN: Bytes = Bytes::mib(4);

/// The end of a file piece that is held back until everything before it is sent and the file is
/// checked again.
///
/// A change is thereby detected while the peer still misses bytes. A change between the check and
/// transmission is not detected: sendfile passes pages, not copies.
const HELD_BACK: Bytes = Bytes::kib(64);

/// A remainder up to this size is sent after a single check of the file: for a small reply, a
/// second check and call would take a tenth of the time.
const SENT_WHOLE: Bytes = Bytes::kib(128);

/// One contiguous piece of bytes to send.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Bytes in memory.
    Text(Vec<u8>),
    /// Bytes of a file.
    File {
        /// The file.
        source: Arc<SourceFile>,
        /// The offset of the first byte in the file.
        start: Bytes,
        /// The number of bytes.
        length: Bytes,
    },
}

impl Piece {
    /// Returns the number of bytes of the piece.
    pub fn length(&self) -> Bytes {
        match self {
            Self::Text(text) => Bytes::new(text.len() as u64),
            Self::File { length, .. } => *length,
        }
    }
}

/// The state of the queue after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The queue is empty: the kernel has everything.
    Done,
    /// The turn's share is used up; the socket may accept more at once.
    More,
    /// The socket's buffer is full: wait until the socket is writable.
    Blocked,
}

/// The queue of one socket.
#[derive(Debug, Default)]
pub struct Outgoing {
    pieces: VecDeque<Piece>,
    /// The bytes sent of the first piece, if it is a text.
    text_sent: usize,
    sent: Bytes,
}

impl Outgoing {
    /// Queues `pieces`; drops empty ones.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces = pieces.into_iter().filter(|piece| piece.length() > Bytes::ZERO).collect();
        Self { pieces, text_sent: 0, sent: Bytes::ZERO }
    }

    /// Returns the number of bytes sent.
    pub fn sent(&self) -> Bytes {
        self.sent
    }

    /// Returns whether nothing is left to send.
    pub fn is_done(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns whether the next turn may wait for a disk.
    pub fn reads_files(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::File { .. }))
    }

    /// Returns whether the remaining bytes, at most `limit`, are in memory or in the page cache, so
    /// that the next turn does not wait for a disk.
    ///
    /// Reads the bytes of files, which takes a tenth of the time of sending them.
    pub fn is_cached(&self, limit: Bytes) -> bool {
        let mut left = Bytes::ZERO;
        self.pieces.iter().all(|piece| {
            left += piece.length();
            left <= limit
                && match piece {
                    Piece::Text(_) => true,
                    Piece::File { source, start, length } => {
                        is_cached(source.file(), *start, *length)
                            && is_readable_at_once(source.file(), *start, *length)
                    }
                }
        })
    }

    /// Moves at most [`TURN`] bytes into `socket`: file bytes by sendfile, without a copy.
    ///
    /// Everything but the last piece is sent with MSG_MORE, so that a head and the first file bytes
    /// share a segment. On a blocking socket the call waits for the peer and never returns
    /// [`Turn::Blocked`].
    pub fn turn(&mut self, socket: impl AsFd) -> Result<Turn, SendError> {
        self.turn_of(socket, TURN)
    }

    /// Does the work of [`turn`](Self::turn) for at most `share` bytes.
    pub fn turn_of(&mut self, socket: impl AsFd, share: Bytes) -> Result<Turn, SendError> {
        let socket = socket.as_fd();
        let end = self.sent + share;
        while self.sent < end {
            let more = self.pieces.len() > 1;
            let share = end - self.sent;
            let moved = match self.pieces.front() {
                None => return Ok(Turn::Done),
                Some(Piece::Text(text)) => {
                    let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
                    let text = part(text, self.text_sent, share);
                    retry_on_intr(|| rustix::net::send(socket, text, flags))
                }
                Some(Piece::File { source, start, length }) => {
                    source.check()?;
                    let mut at = start.get();
                    let ahead = if *length > SENT_WHOLE { *length - HELD_BACK } else { *length };
                    let share = share.min(ahead).as_usize();
                    let mut send = || rustix::fs::sendfile(socket, source.file(), Some(&mut at), share);
                    source.during(|| retry_on_intr(&mut send))
                }
            };
            match moved {
                Ok(moved) => self.take(Bytes::new(moved as u64))?,
                Err(Errno::AGAIN) => return Ok(Turn::Blocked),
                Err(error) => return Err(self.blame(error)),
            }
        }
        Ok(if self.is_done() { Turn::Done } else { Turn::More })
    }

    /// Appends the next bytes, at most `limit`, to `buffer`; appends nothing once all is sent.
    ///
    /// After an error `buffer` must not be sent: it may hold bytes of a changed file.
    pub fn fill(&mut self, buffer: &mut Vec<u8>, limit: Bytes) -> Result<(), SendError> {
        let end = self.sent + limit;
        while self.sent < end {
            let share = end - self.sent;
            let read = match self.pieces.front() {
                None => break,
                Some(Piece::Text(text)) => {
                    let text = part(text, self.text_sent, share);
                    buffer.extend_from_slice(text);
                    text.len()
                }
                Some(Piece::File { source, start, length }) => {
                    let filled = buffer.len();
                    buffer.resize(filled + share.min(*length).as_usize(), 0);
                    let read = source
                        .during(|| source.file().read_at(&mut buffer[filled..], start.get()))
                        .map_err(|error| source.unreadable(&error))?;
                    buffer.truncate(filled + read);
                    // Checked after the read, so that all bytes copied are of one version.
                    source.check()?;
                    read
                }
            };
            self.take(Bytes::new(read as u64))?;
        }
        Ok(())
    }

    /// Removes `moved` bytes from the front; zero means that a file ended too early.
    fn take(&mut self, moved: Bytes) -> Result<(), SendError> {
        self.sent += moved;
        let empty = match self.pieces.front_mut() {
            None => return Ok(()),
            Some(Piece::Text(text)) => {
                self.text_sent += moved.as_usize();
                self.text_sent >= text.len()
            }
            Some(Piece::File { source, .. }) if moved == Bytes::ZERO => {
                return Err(source.changed().into());
            }
            Some(Piece::File { start, length, .. }) => {
                *start += moved;
                *length = *length - moved;
                *length == Bytes::ZERO
            }
        };
        if empty {
            self.pieces.pop_front();
            self.text_sent = 0;
        }
        Ok(())
    }

    /// Classifies an error of sendfile, which reports disk and socket errors alike: these errors
    /// come from a disk.
    fn blame(&self, error: Errno) -> SendError {
        match self.pieces.front() {
            Some(Piece::File { source, .. })
                if matches!(
                    error,
                    Errno::IO | Errno::STALE | Errno::INVAL | Errno::ISDIR | Errno::OVERFLOW
                ) =>
            {
                source.unreadable(&error.into()).into()
            }
            _ => SendError::Socket(error.into()),
        }
    }
}

/// Returns whether a range that is in the page cache can be read without waiting. cachestat(2) also
/// counts pages that the kernel is still reading from the device, for which sendfile waits. Starts
/// reading missing pages.
fn is_readable_at_once(file: &File, start: Bytes, length: Bytes) -> bool {
    /// Fits into the first-level cache of a processor.
    const CHUNK: usize = 32 << 10;
    let mut buffer = [0; CHUNK];
    let (mut at, end) = (start.get(), (start + length).get());
    while at < end {
        let share = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let mut parts = [IoSliceMut::new(&mut buffer[..share])];
        match retry_on_intr(|| preadv2(file, &mut parts, at, ReadWriteFlags::NOWAIT)) {
            // The file has become shorter, which sendfile also reports at once.
            Ok(0) => return true,
            Ok(read) => at += read as u64,
            // Local file systems without such reads have no device: tmpfs and ramfs.
            Err(error) => return error == Errno::OPNOTSUPP,
        }
    }
    true
}

/// Returns at most `share` bytes of a text after its first `sent` bytes.
fn part(text: &[u8], sent: usize, share: Bytes) -> &[u8] {
    let rest = &text[sent..];
    &rest[..rest.len().min(share.as_usize())]
}

#[cfg(test)]
mod tests;
