//! A queue of texts and file ranges on their way into a socket.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;
use thiserror::Error;

/// The most bytes that one [`Outgoing::turn`] moves, so that a fast peer does not starve the others.
pub const TURN: Bytes = Bytes::mib(4);

/// A file open for sending, and the path to name it by.
#[derive(Debug)]
pub struct SourceFile {
    /// The file; read by position only, so that many senders can share it.
    pub file: File,
    /// Where it was found.
    pub path: PathBuf,
}

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

/// Why sending ended early. The peer must see the connection end: it was promised more bytes.
#[derive(Debug, Error)]
pub enum SendError {
    /// The socket took no more.
    #[error("sending failed: {0}")]
    Socket(#[source] io::Error),
    /// The file could not be read.
    #[error("reading {path} to send it failed: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file became shorter than when sending began.
    #[error("{path} shrank while being sent: {missing} are gone; send it again once nobody truncates it", path = path.display())]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// How much of the promised range the file no longer holds.
        missing: Bytes,
    },
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
    sent: Bytes,
}

impl Outgoing {
    /// Queues `pieces`; empty ones are dropped.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces = pieces.into_iter().filter(|piece| piece.length() > Bytes::ZERO).collect();
        Self { pieces, sent: Bytes::ZERO }
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

    /// Moves at most [`TURN`] bytes into `socket`: file bytes by sendfile, without a copy.
    ///
    /// All but the last piece goes with MSG_MORE, so that a head and the first file bytes leave in
    /// one segment. On a blocking socket it waits for the peer and never ends [`Turn::Blocked`].
    pub fn turn(&mut self, socket: impl AsFd) -> Result<Turn, SendError> {
        let socket = socket.as_fd();
        let end = self.sent + TURN;
        while self.sent < end {
            let more = self.pieces.len() > 1;
            let share = end - self.sent;
            let moved = match self.pieces.front() {
                None => return Ok(Turn::Done),
                Some(Piece::Text(text)) => {
                    let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
                    retry_on_intr(|| rustix::net::send(socket, text, flags))
                }
                Some(Piece::File { source, start, length }) => {
                    let mut at = start.get();
                    let share = share.min(*length).as_usize();
                    retry_on_intr(|| rustix::fs::sendfile(socket, &source.file, Some(&mut at), share))
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
    pub fn fill(&mut self, buffer: &mut Vec<u8>, limit: Bytes) -> Result<(), SendError> {
        let end = self.sent + limit;
        while self.sent < end {
            let share = (end - self.sent).as_usize();
            let read = match self.pieces.front() {
                None => break,
                Some(Piece::Text(text)) => {
                    let share = share.min(text.len());
                    buffer.extend_from_slice(&text[..share]);
                    share
                }
                Some(Piece::File { source, start, length }) => {
                    let filled = buffer.len();
                    buffer.resize(filled + share.min(length.as_usize()), 0);
                    let read = source
                        .file
                        .read_at(&mut buffer[filled..], start.get())
                        .map_err(|error| SendError::Read { path: source.path.clone(), source: error })?;
                    buffer.truncate(filled + read);
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
                text.drain(..moved.as_usize().min(text.len()));
                text.is_empty()
            }
            Some(Piece::File { source, length, .. }) if moved == Bytes::ZERO => {
                return Err(SendError::Shrunk { path: source.path.clone(), missing: *length });
            }
            Some(Piece::File { start, length, .. }) => {
                *start += moved;
                *length = *length - moved;
                *length == Bytes::ZERO
            }
        };
        if empty {
            self.pieces.pop_front();
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
                SendError::Read { path: source.path.clone(), source: error.into() }
            }
            _ => SendError::Socket(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn source(content: &[u8]) -> Arc<SourceFile> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(SourceFile { file, path: PathBuf::from("a-file") })
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn pieces(source: &Arc<SourceFile>, size: u64) -> Vec<Piece> {
        let part = |start: u64, length: u64| Piece::File {
            source: Arc::clone(source),
            start: Bytes::new(start),
            length: Bytes::new(length),
        };
        vec![
            Piece::Text(b"head".to_vec()),
            Piece::Text(Vec::new()),
            part(0, size / 2),
            Piece::Text(b"mid".to_vec()),
            part(size / 2, size - size / 2),
        ]
    }

    fn expected(content: &[u8]) -> Vec<u8> {
        let (a, b) = content.split_at(content.len() / 2);
        [b"head", a, b"mid", b].concat()
    }

    #[test]
    fn the_same_bytes_arrive_blocking_or_not_and_copied() {
        let content: Vec<u8> = (0..9_000_001u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let source = source(&content);
        for nonblocking in [false, true] {
            let (near, mut far) = pair();
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                far.read_to_end(&mut all).map(|_| all)
            });
            near.set_nonblocking(nonblocking).unwrap();
            let mut outgoing = Outgoing::new(pieces(&source, content.len() as u64));
            let mut blocked = 0;
            loop {
                match outgoing.turn(&near).unwrap() {
                    Turn::Done => break,
                    Turn::More => {}
                    Turn::Blocked => {
                        blocked += 1;
                        let mut polled = [rustix::event::PollFd::new(&near, rustix::event::PollFlags::OUT)];
                        rustix::event::poll(&mut polled, None).unwrap();
                    }
                }
            }
            assert!(nonblocking || blocked == 0);
            assert_eq!(outgoing.sent().get(), content.len() as u64 + 7);
            drop(near);
            assert!(reader.join().unwrap().unwrap() == expected(&content));
        }
        let mut outgoing = Outgoing::new(pieces(&source, content.len() as u64));
        let mut all = Vec::new();
        while !outgoing.is_done() {
            outgoing.fill(&mut all, Bytes::kib(256)).unwrap();
        }
        assert!(all == expected(&content));
    }

    #[test]
    fn a_shrunken_file_is_an_error_not_padding() {
        let source = source(&[1; 1000]);
        let whole = || {
            Outgoing::new([Piece::File {
                source: Arc::clone(&source),
                start: Bytes::ZERO,
                length: Bytes::new(1500),
            }])
        };
        let (near, _far) = pair();
        let error = whole().turn(&near).unwrap_err();
        assert!(matches!(&error, SendError::Shrunk { missing, .. } if missing.get() == 500), "{error}");
        let mut buffer = Vec::new();
        assert!(matches!(whole().fill(&mut buffer, Bytes::mib(1)), Err(SendError::Shrunk { .. })));
        assert_eq!(buffer.len(), 1000);
    }

    #[test]
    fn a_turn_is_bounded_even_for_the_fastest_peer() {
        let source = source(&vec![5; 2 * TURN.as_usize()]);
        let (near, mut far) = pair();
        std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()));
        let mut outgoing = Outgoing::new([Piece::File { source, start: Bytes::ZERO, length: TURN * 2 }]);
        assert_eq!(outgoing.turn(&near).unwrap(), Turn::More);
        assert_eq!(outgoing.sent(), TURN);
    }

    #[test]
    fn a_peer_that_left_is_a_socket_error() {
        let (near, far) = pair();
        drop(far);
        let source = source(&[0; 100_000]);
        let error = (0..50).find_map(|_| {
            let source = Arc::clone(&source);
            Outgoing::new([Piece::File { source, start: Bytes::ZERO, length: Bytes::new(100_000) }])
                .turn(&near)
                .err()
        });
        assert!(matches!(error, Some(SendError::Socket(_))), "{error:?}");
    }
}
