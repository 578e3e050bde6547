//! A queue of texts and file ranges on their way into a socket.

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

/// The most bytes that one [`Outgoing::turn`] moves, so that a fast peer does not starve the others.
pub const TURN: Bytes = Bytes::mib(4);

/// How much of a file piece is held back until all before it is sent and the file looked at again.
///
/// A change is then noticed while the peer still misses bytes. What changes in the moment between
/// that look and the network card is not: sendfile hands over pages, not copies.
const HELD_BACK: Bytes = Bytes::kib(64);

/// A rest of at most this size is sent after one look at the file: of a small reply, a second look and call would take a tenth of the
/// time.
const SENT_WHOLE: Bytes = Bytes::kib(128);

/// One run of bytes to send.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Bytes in memory.
    Text(Vec<u8>),
    /// Bytes of a file.
    File {
        /// Where they come from.
        source: Arc<SourceFile>,
        /// The first byte's place in the file.
        start: Bytes,
        /// How many bytes.
        length: Bytes,
    },
}

impl Piece {
    /// Returns how many bytes the piece holds.
    pub fn length(&self) -> Bytes {
        match self {
            Self::Text(text) => Bytes::new(text.len() as u64),
            Self::File { length, .. } => *length,
        }
    }
}

/// Where a turn left the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The queue is empty: the socket has everything.
    Done,
    /// The turn's share is used up; the socket may take more at once.
    More,
    /// The socket's buffer is full: wait until it can be written again.
    Blocked,
}

/// Bytes on their way into one socket, in order.
#[derive(Debug, Default)]
pub struct Outgoing {
    pieces: VecDeque<Piece>,
    /// How much of the first piece, if it is a text, has left.
    text_sent: usize,
    sent: Bytes,
}

impl Outgoing {
    /// Queues `pieces`; empty ones are dropped.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces = pieces.into_iter().filter(|piece| piece.length() > Bytes::ZERO).collect();
        Self { pieces, text_sent: 0, sent: Bytes::ZERO }
    }

    /// Returns how many bytes have left the queue.
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

    /// Returns whether all that is left, at most `limit`, is in memory or in the page cache: the next turn waits for no disk.
    ///
    /// Reads the bytes of files, which takes a tenth of sending them.
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
    /// All but the last piece goes with MSG_MORE, so that a head and the first file bytes leave in
    /// one segment. On a blocking socket it waits for the peer and never ends [`Turn::Blocked`].
    pub fn turn(&mut self, socket: impl AsFd) -> Result<Turn, SendError> {
        self.turn_of(socket, TURN)
    }

    /// The same for at most `share` bytes.
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
                    retry_on_intr(|| rustix::fs::sendfile(socket, source.file(), Some(&mut at), share))
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

    /// Copies the next bytes, at most `limit`, to the end of `buffer`; adds nothing once all is sent.
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
                        .file()
                        .read_at(&mut buffer[filled..], start.get())
                        .map_err(|error| SendError::Read { path: source.path().clone(), source: error })?;
                    buffer.truncate(filled + read);
                    // Later than the read: what was copied is then sure to be of one version.
                    source.check()?;
                    read
                }
            };
            self.take(Bytes::new(read as u64))?;
        }
        Ok(())
    }

    /// Drops `moved` bytes from the front; none at all means that a file has ended too early.
    fn take(&mut self, moved: Bytes) -> Result<(), SendError> {
        self.sent += moved;
        let empty = match self.pieces.front_mut() {
            None => return Ok(()),
            Some(Piece::Text(text)) => {
                self.text_sent += moved.as_usize();
                self.text_sent >= text.len()
            }
            Some(Piece::File { source, .. }) if moved == Bytes::ZERO => {
                return Err(SendError::Changed { path: source.path().clone() });
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

    /// sendfile reports the disk's and the socket's errors alike; only these come from a disk.
    fn blame(&self, error: Errno) -> SendError {
        match self.pieces.front() {
            Some(Piece::File { source, .. })
                if matches!(
                    error,
                    Errno::IO | Errno::STALE | Errno::INVAL | Errno::ISDIR | Errno::OVERFLOW
                ) =>
            {
                SendError::Read { path: source.path().clone(), source: error.into() }
            }
            _ => SendError::Socket(error.into()),
        }
    }
}

/// Returns whether a range whose pages are in the page cache can be read without waiting: a page that the kernel still reads from
/// the device is counted by cachestat(2) too, and sendfile waits for it. Of others it begins to read them.
fn is_readable_at_once(file: &File, start: Bytes, length: Bytes) -> bool {
    /// What fits into the first level of a processor's cache.
    const CHUNK: usize = 32 << 10;
    let mut buffer = [0; CHUNK];
    let (mut at, end) = (start.get(), (start + length).get());
    while at < end {
        let share = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let mut parts = [IoSliceMut::new(&mut buffer[..share])];
        match retry_on_intr(|| preadv2(file, &mut parts, at, ReadWriteFlags::NOWAIT)) {
            // The end of a file that has become shorter: sendfile finds it at once too.
            Ok(0) => return true,
            Ok(read) => at += read as u64,
            // Of the local file systems, those without such reads have no device: tmpfs and ramfs.
            Err(error) => return error == Errno::OPNOTSUPP,
        }
    }
    true
}

/// Returns what `share` covers of a text whose first `sent` bytes have left.
fn part(text: &[u8], sent: usize, share: Bytes) -> &[u8] {
    let rest = &text[sent..];
    &rest[..rest.len().min(share.as_usize())]
}

#[cfg(test)]
mod tests;
