//! Reads and writes one connection, plain or through TLS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::send::{Outgoing, SendError};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use crate::Timeouts;
use crate::connection::plain_sender::send_plain;
use crate::connection::stall_detector::StallDetector;
use crate::connection::tls_sender::send_tls;
use crate::paths::disks::{Disk, DiskError};

/// Bytes encrypted or decrypted at once; a reply over TLS needs two such buffers.
pub(crate) const TLS_CHUNK: Bytes = Bytes::kib(64);

/// Bytes read from the peer at once.
const READ_SIZE: usize = 8 << 10;

/// The most bytes of further requests that are read while one is answered.
const READ_AHEAD: usize = 64 << 10;

/// A connection, after its TLS handshake if it uses TLS.
pub(crate) enum ServerTransport {
    /// HTTP: files are sent by sendfile(2).
    Plain(Arc<TcpStream>),
    /// HTTPS: files are read and encrypted in this process.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a reply was not written completely.
#[derive(Debug, Error)]
pub(crate) enum ReplyError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("the peer took nothing for {} s", .0.as_secs_f32())]
    Stalled(Duration),
    #[error("the peer took less than {0}")]
    Slow(Rate),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("another client got the slot of this one, which had the most connections")]
    Evicted,
}

impl From<io::Error> for ReplyError {
    fn from(error: io::Error) -> Self {
        Self::Send(SendError::Socket(error))
    }
}

impl ServerTransport {
    /// Returns the TCP socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.get_ref().0.as_fd(),
        }
    }

    /// Appends received bytes to `inbox` and returns their number; zero at the end of the
    /// connection.
    pub(crate) async fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => loop {
                // Idle connections wait here, thousands of them: none holds a buffer while it
                // waits.
                stream.readable().await?;
                let mut chunk = [0; READ_SIZE];
                match stream.try_read(&mut chunk) {
                    Ok(length) => {
                        inbox.extend_from_slice(&chunk[..length]);
                        return Ok(length);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            },
            Self::Tls(stream) => {
                inbox.reserve(READ_SIZE);
                stream.read_buf(inbox).await
            }
        }
    }

    /// Waits until the peer has closed its side of the connection; keeps the requests that it sends
    /// until then, up to [`READ_AHEAD`].
    pub(crate) async fn closed(&mut self, inbox: &mut Vec<u8>) {
        while inbox.len() < READ_AHEAD {
            if !matches!(self.read(inbox).await, Ok(1..)) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Receives up to `most` bytes and discards them; returns their number, zero at the end of the
    /// connection.
    pub(crate) async fn discard(&mut self, most: usize) -> io::Result<usize> {
        match self {
            // The kernel discards the bytes without copying them (tcp(7), MSG_TRUNC).
            Self::Plain(stream) => {
                let discard = || {
                    let (_, length) = recv(&*stream, vec![0; most].as_mut_slice(), RecvFlags::TRUNC)?;
                    Ok(length)
                };
                stream.async_io(Interest::READABLE, discard).await
            }
            Self::Tls(stream) => stream.read(&mut vec![0; most.min(TLS_CHUNK.as_usize())]).await,
        }
    }

    /// Writes an interim reply.
    pub(crate) async fn write_interim(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => {
                let mut left = text;
                while !left.is_empty() {
                    let write = || Ok(send(&*stream, left, SendFlags::NOSIGNAL)?);
                    left = &left[stream.async_io(Interest::WRITABLE, write).await?..];
                }
                Ok(())
            }
            Self::Tls(stream) => {
                stream.write_all(text).await?;
                stream.flush().await
            }
        }
    }

    /// Writes everything queued; fails where the peer stalls or acknowledges too slowly.
    ///
    /// Stores in `sent` how many bytes the socket has accepted. Files are read from `disk`.
    pub(crate) async fn send(
        &mut self,
        outgoing: &mut Outgoing,
        timeouts: &Timeouts,
        (sent, disk): (&AtomicU64, Option<&Disk>),
    ) -> Result<(), ReplyError> {
        match self {
            Self::Plain(stream) => send_plain(stream, outgoing, (timeouts, sent, disk)).await,
            Self::Tls(stream) => send_tls(stream, outgoing, (timeouts, sent, disk)).await,
        }
    }

    /// Closes the connection in a way that lets the peer read the last reply (RFC 9112, section
    /// 9.6).
    ///
    /// Shuts down the sending side, then discards what the peer still sends, up to `most` bytes:
    /// closing a socket with unread bytes would reset the connection. Waits at most `limit` after
    /// the peer's last acknowledgement, and not for a peer slower than `slowest`.
    pub(crate) async fn close(&mut self, limit: Duration, slowest: Rate, most: Bytes) {
        let shut_down = match self {
            Self::Plain(stream) => rustix::net::shutdown(stream, rustix::net::Shutdown::Write).is_ok(),
            Self::Tls(stream) => matches!(timeout(limit, stream.shutdown()).await, Ok(Ok(()))),
        };
        let mut detector = StallDetector::new(self.socket(), limit, slowest);
        let mut deadline = Instant::now() + limit;
        let (mut dropped, mut inbox) = (Bytes::ZERO, Vec::new());
        while shut_down && dropped < most {
            match timeout_at(deadline, self.read(&mut inbox)).await {
                Ok(Ok(length @ 1..)) => dropped += Bytes::new(length as u64),
                Ok(_) => return,
                Err(_) if detector.has_progressed(self.socket()) => deadline = Instant::now() + limit,
                Err(_) => return,
            }
            inbox.clear();
        }
    }

    /// Resets the connection; discards what is still in its send buffer, for a peer that does not
    /// read.
    pub(crate) fn reset(&self) {
        // Where the option is refused, the kernel's own retransmission timeout ends the connection
        // later.
        let _ = SockRef::from(&self.socket()).set_linger(Some(Duration::ZERO));
    }
}
