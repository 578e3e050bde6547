//! Reads and writes one connection, plain or through TLS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::send::{Outgoing, SendError, Turn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use crate::Timeouts;
use crate::disks::{Disk, DiskError, DiskPlace, Lent};
use crate::listen::{MORE_UNSENT, UnsentLimit};
use crate::stall_detector::StallDetector;

/// Bytes encrypted or decrypted at once; a reply over TLS needs two such buffers.
pub(crate) const TLS_CHUNK: Bytes = Bytes::kib(64);

/// How long a connection may keep a blocking thread before other connections get it.
const BLOCKING_TURN: Duration = Duration::from_millis(20);

/// How long a blocking thread waits for its socket: at 10 Gbit/s half of the largest limit of unsent data (`MORE_UNSENT`) is sent in 6.7 ms.
const SOCKET_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 8_000_000 };

/// A reply of at most this size is sent by the connection's task where its files are cached: that takes less than a change of
/// threads, and holds up other connections for less than a millisecond.
const SMALL_REPLY: Bytes = Bytes::kib(512);

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

    /// Appends received bytes to `inbox` and returns their number; zero at the end of the connection.
    pub(crate) async fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => loop {
                // Idle connections wait here, thousands of them: none holds a buffer while it waits.
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

    /// Waits until the peer has closed its side of the connection; keeps the requests that it sends until then, up to [`READ_AHEAD`].
    pub(crate) async fn closed(&mut self, inbox: &mut Vec<u8>) {
        while inbox.len() < READ_AHEAD {
            if !matches!(self.read(inbox).await, Ok(1..)) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Receives up to `most` bytes and discards them; returns their number, zero at the end of the connection.
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
                    stream.writable().await?;
                    match stream.try_write(left) {
                        Ok(written) => left = &left[written..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
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
        if let Self::Plain(stream) = self
            && sends_at_once(outgoing, disk)
        {
            let turn = take_turn(stream, outgoing)?;
            record_sent(outgoing, sent, stream);
            if turn == Turn::Done {
                return Ok(());
            }
        }
        let detector = StallDetector::new(self.socket(), timeouts.stall, timeouts.slowest);
        match self {
            Self::Plain(stream) => send_plain(stream, outgoing, (timeouts, sent, disk), detector).await,
            Self::Tls(stream) => send_tls(stream, outgoing, (timeouts, sent, disk), detector).await,
        }
    }

    /// Closes the connection in a way that lets the peer read the last reply (RFC 9112, section 9.6).
    ///
    /// Shuts down the sending side, then discards what the peer still sends, up to `most` bytes: closing a socket
    /// with unread bytes would reset the connection. Waits at most `limit` after the peer's last
    /// acknowledgement, and not for a peer slower than `slowest`.
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

    /// Resets the connection; discards what is still in its send buffer, for a peer that does not read.
    pub(crate) fn reset(&self) {
        // Where the option is refused, the kernel's own retransmission timeout ends the connection later.
        let _ = SockRef::from(&self.socket()).set_linger(Some(Duration::ZERO));
    }
}

async fn send_plain(
    stream: &Arc<TcpStream>,
    outgoing: &mut Outgoing,
    (timeouts, sent, disk): (&Timeouts, &AtomicU64, Option<&Disk>),
    mut detector: StallDetector,
) -> Result<(), ReplyError> {
    loop {
        match timeout(timeouts.stall, stream.writable()).await {
            Ok(writable) => writable?,
            Err(_) if detector.has_progressed(stream) => continue,
            Err(_) => return Err(ReplyError::Stalled(timeouts.stall)),
        }
        if !detector.is_fast_enough(stream) {
            return Err(ReplyError::Slow(timeouts.slowest));
        }
        let turn = match disk.filter(|_| outgoing.reads_files() && !sends_at_once(outgoing, disk)) {
            Some(disk) => {
                // sendfile may wait for the disk, which must not block other tasks.
                let (stream, mut queue) = (Arc::clone(stream), std::mem::take(outgoing));
                let run = move |place: &mut DiskPlace| {
                    let turn = take_turns(&stream, &mut queue, place);
                    (queue, turn)
                };
                let (queue, turn) = disk.run_in_place(run).await?;
                *outgoing = queue;
                turn?
            }
            None => take_turn(stream, outgoing)?,
        };
        record_sent(outgoing, sent, stream);
        if turn == Turn::Done {
            return Ok(());
        }
    }
}

/// Stores the bytes that the socket has accepted; lets a peer that keeps up have more unsent bytes in the kernel's buffer.
fn record_sent(outgoing: &Outgoing, sent: &AtomicU64, socket: &TcpStream) {
    let now = outgoing.sent().get();
    let before = sent.swap(now, Ordering::Relaxed);
    let is_crossed = |limit: &&UnsentLimit| before < limit.from.get() && now >= limit.from.get();
    let Some(UnsentLimit { limit, .. }) = MORE_UNSENT.iter().rfind(is_crossed) else { return };
    let (socket, limit) = (SockRef::from(socket), u32::try_from(limit.get()).unwrap_or(u32::MAX));
    // An earlier reply may have raised it further.
    if socket.tcp_notsent_lowat().is_ok_and(|present| present < limit) {
        // Refused, the buffer stays small, and the transfer slower.
        let _ = socket.set_tcp_notsent_lowat(limit);
    }
}

/// Returns whether the rest of a reply is small and in memory.
fn sends_at_once(outgoing: &Outgoing, disk: Option<&Disk>) -> bool {
    !outgoing.reads_files() || (disk.is_some_and(Disk::is_local) && outgoing.is_cached(SMALL_REPLY))
}

/// Sends turn after turn while the peer keeps up: a change of threads per turn would cost more than the sending.
///
/// While the socket is full, the place is lent to other replies.
fn take_turns(stream: &TcpStream, outgoing: &mut Outgoing, place: &mut DiskPlace) -> Result<Turn, SendError> {
    let end = std::time::Instant::now() + BLOCKING_TURN;
    while std::time::Instant::now() < end {
        match outgoing.turn(stream)? {
            Turn::Done => return Ok(Turn::Done),
            Turn::Blocked => match place.lend(|| becomes_writable(stream, &SOCKET_WAIT)) {
                Lent::Waited(true) => {}
                Lent::Waited(false) | Lent::Crowded => break,
                Lent::Lost => {
                    clear_readiness(stream);
                    return Ok(Turn::Blocked);
                }
            },
            Turn::More => {}
        }
    }
    take_turn(stream, outgoing)
}

fn becomes_writable(stream: &TcpStream, within: &Timespec) -> bool {
    let mut sockets = [PollFd::new(stream, PollFlags::OUT)];
    matches!(poll(&mut sockets, Some(within)), Ok(1..))
}

/// Clears the runtime's readiness where the socket is full, so that `writable` waits; sends nothing.
fn clear_readiness(stream: &TcpStream) {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let cleared = stream.try_io(Interest::WRITABLE, || match becomes_writable(stream, &NOW) {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    });
    drop(cleared);
}

/// Sends one turn; clears the runtime's readiness where the socket is full, so that `writable` waits.
fn take_turn(stream: &TcpStream, outgoing: &mut Outgoing) -> Result<Turn, SendError> {
    let mut turn = Ok(Turn::Blocked);
    let readiness = stream.try_io(Interest::WRITABLE, || {
        turn = outgoing.turn(stream);
        match turn {
            Ok(Turn::Blocked) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    drop(readiness);
    turn
}

/// Encrypts and writes one chunk while the next is read.
async fn send_tls(
    stream: &mut TlsStream<TcpStream>,
    outgoing: &mut Outgoing,
    (timeouts, sent, disk): (&Timeouts, &AtomicU64, Option<&Disk>),
    mut detector: StallDetector,
) -> Result<(), ReplyError> {
    let mut chunk = read_chunk(outgoing, Vec::new(), disk).await?;
    let mut spare = Vec::new();
    while !chunk.is_empty() {
        let (written, next) = tokio::join!(
            write_tls(stream, &chunk, timeouts, &mut detector),
            read_chunk(outgoing, std::mem::take(&mut spare), disk)
        );
        written?;
        record_sent(outgoing, sent, stream.get_ref().0);
        spare = std::mem::replace(&mut chunk, next?);
    }
    Ok(())
}

async fn write_tls(
    stream: &mut TlsStream<TcpStream>,
    mut chunk: &[u8],
    timeouts: &Timeouts,
    detector: &mut StallDetector,
) -> Result<(), ReplyError> {
    let mut flushed = false;
    while !flushed {
        // Both are cancel-safe: a timeout loses no count of what was written.
        let step = async {
            match chunk {
                [] => stream.flush().await.map(|()| 0),
                chunk => stream.write(chunk).await,
            }
        };
        match timeout(timeouts.stall, step).await {
            Ok(written) => {
                flushed = chunk.is_empty();
                chunk = &chunk[written?..];
            }
            Err(_) if detector.has_progressed(stream.get_ref().0) => {}
            Err(_) => return Err(ReplyError::Stalled(timeouts.stall)),
        }
        if !detector.is_fast_enough(stream.get_ref().0) {
            return Err(ReplyError::Slow(timeouts.slowest));
        }
    }
    Ok(())
}

async fn read_chunk(
    outgoing: &mut Outgoing,
    mut chunk: Vec<u8>,
    disk: Option<&Disk>,
) -> Result<Vec<u8>, ReplyError> {
    chunk.clear();
    if !outgoing.reads_files() {
        outgoing.fill(&mut chunk, TLS_CHUNK)?;
        return Ok(chunk);
    }
    let mut queue = std::mem::take(outgoing);
    let (queue, filled) = blocking(disk, move || {
        let filled = queue.fill(&mut chunk, TLS_CHUNK).map(|()| chunk);
        (queue, filled)
    })
    .await?;
    *outgoing = queue;
    Ok(filled?)
}

/// Runs an operation on files of `disk` on a blocking thread; where there is no disk, the files are in memory.
async fn blocking<T: Send + 'static>(
    disk: Option<&Disk>,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReplyError> {
    match disk {
        Some(disk) => Ok(disk.run(operation).await?),
        None => Ok(spawn_blocking(operation).await.map_err(io::Error::from)?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use longhaul_engine::send::Piece;

    use super::*;

    #[tokio::test]
    async fn full_socket_is_waited_for_after_its_place_is_lost() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut outgoing = Outgoing::new([Piece::Text(vec![7; 64 << 20])]);
        stream.writable().await.unwrap();
        while outgoing.turn(&stream).unwrap() != Turn::Blocked {}
        // The runtime still holds the readiness from before the socket was full.
        let rounds = AtomicUsize::new(0);
        let waits = async {
            loop {
                stream.writable().await.unwrap();
                rounds.fetch_add(1, Ordering::Relaxed);
                clear_readiness(&stream);
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(Duration::from_millis(100), waits).await.is_err());
        assert!(rounds.into_inner() <= 3, "it does not spin");
        drop(connected);
    }
}
