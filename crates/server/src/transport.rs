//! One connection's bytes, plain or through TLS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::send::{Outgoing, SendError, Turn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use crate::Limits;
use crate::patience::Patience;

/// How much of a file is read at once for TLS; two such buffers make one reply's memory.
const TLS_CHUNK: Bytes = Bytes::kib(64);

/// How long one connection keeps a thread that may wait for disks, before others have their turn.
const STAY: Duration = Duration::from_millis(20);

/// How long such a thread waits for its socket: what a peer at 3 Gbit/s needs to make room.
const KEEPS_UP: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// How much is read from the peer at once.
const READ: usize = 8 << 10;

/// A connection after its handshake, if it had one.
pub(crate) enum Transport {
    /// HTTP: files leave by sendfile.
    Plain(Arc<TcpStream>),
    /// HTTPS: files are copied and encrypted here.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a reply did not reach the socket whole.
#[derive(Debug, Error)]
pub(crate) enum ReplyError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("the peer took nothing for {} s", .0.as_secs_f32())]
    Stalled(Duration),
    #[error("the peer took less than {0}")]
    Slow(Rate),
}

impl From<io::Error> for ReplyError {
    fn from(error: io::Error) -> Self {
        Self::Send(SendError::Socket(error))
    }
}

impl Transport {
    /// Returns the socket underneath.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.get_ref().0.as_fd(),
        }
    }

    /// Appends what the peer has sent to `inbox`; gives zero at its end.
    pub(crate) async fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => loop {
                // No buffer exists while waiting: thousands of idle connections wait here.
                stream.readable().await?;
                let mut chunk = [0; READ];
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
                inbox.reserve(READ);
                stream.read_buf(inbox).await
            }
        }
    }

    /// Sends everything queued, waiting for the peer as long as it goes on acknowledging fast enough.
    pub(crate) async fn send(&mut self, outgoing: &mut Outgoing, limits: &Limits) -> Result<(), ReplyError> {
        let patience = Patience::new(self.socket(), limits.stall, limits.slowest);
        match self {
            Self::Plain(stream) => send_plain(stream, outgoing, limits, patience).await,
            Self::Tls(stream) => send_tls(stream, outgoing, limits, patience).await,
        }
    }

    /// Ends the connection so that the peer can still read the last reply.
    ///
    /// Says that no more comes, then reads off what the peer still sends, for closing on unread
    /// bytes would reset the connection (RFC 9112, section 9.6). Waits at most `limit` after the
    /// peer's last acknowledgement, and not for one slower than `slowest`.
    ///
    /// No more than `most` is read off: a request's body that nobody wants may be long.
    pub(crate) async fn finish(&mut self, limit: Duration, slowest: Rate, most: Bytes) {
        let said = match self {
            Self::Plain(stream) => rustix::net::shutdown(stream, rustix::net::Shutdown::Write).is_ok(),
            Self::Tls(stream) => matches!(timeout(limit, stream.shutdown()).await, Ok(Ok(()))),
        };
        let mut patience = Patience::new(self.socket(), limit, slowest);
        let mut deadline = Instant::now() + limit;
        let (mut dropped, mut inbox) = (Bytes::ZERO, Vec::new());
        while said && dropped < most {
            match timeout_at(deadline, self.read(&mut inbox)).await {
                Ok(Ok(length @ 1..)) => dropped += Bytes::new(length as u64),
                Ok(_) => return,
                Err(_) if patience.renewed(self.socket()) => deadline = Instant::now() + limit,
                Err(_) => return,
            }
            inbox.clear();
        }
    }

    /// Ends the connection and drops what the kernel still holds for a peer that takes nothing.
    pub(crate) fn reset(self) {
        // Where the option is refused, the kernel gives up on the peer by itself, only later.
        let _ = SockRef::from(&self.socket()).set_linger(Some(Duration::ZERO));
    }
}

async fn send_plain(
    stream: &Arc<TcpStream>,
    outgoing: &mut Outgoing,
    limits: &Limits,
    mut patience: Patience,
) -> Result<(), ReplyError> {
    loop {
        match timeout(limits.stall, stream.writable()).await {
            Ok(writable) => writable?,
            Err(_) if patience.renewed(stream) => continue,
            Err(_) => return Err(ReplyError::Stalled(limits.stall)),
        }
        if !patience.keeps_up(stream) {
            return Err(ReplyError::Slow(limits.slowest));
        }
        let turn = if outgoing.reads_files() {
            // sendfile may wait for a disk, so it runs where waiting stops nobody else.
            let (stream, mut queue) = (Arc::clone(stream), std::mem::take(outgoing));
            let (queue, turn) = spawn_blocking(move || {
                let turn = take_turns(&stream, &mut queue);
                (queue, turn)
            })
            .await
            .map_err(io::Error::from)?;
            *outgoing = queue;
            turn?
        } else {
            take_turn(stream, outgoing)?
        };
        if turn == Turn::Done {
            return Ok(());
        }
    }
}

/// Takes turns while the peer keeps up, for changing threads at each would cost more than sending does.
fn take_turns(stream: &TcpStream, outgoing: &mut Outgoing) -> Result<Turn, SendError> {
    let end = std::time::Instant::now() + STAY;
    let ready = || {
        let mut sockets = [PollFd::new(stream, PollFlags::OUT)];
        matches!(poll(&mut sockets, Some(&KEEPS_UP)), Ok(1..))
    };
    while std::time::Instant::now() < end {
        match outgoing.turn(stream)? {
            Turn::Done => return Ok(Turn::Done),
            Turn::Blocked if !ready() => break,
            Turn::Blocked | Turn::More => {}
        }
    }
    take_turn(stream, outgoing)
}

/// Takes a turn and tells the runtime when the socket is full, so that `writable` waits.
fn take_turn(stream: &TcpStream, outgoing: &mut Outgoing) -> Result<Turn, SendError> {
    let mut turn = Ok(Turn::Blocked);
    let told = stream.try_io(Interest::WRITABLE, || {
        turn = outgoing.turn(stream);
        match turn {
            Ok(Turn::Blocked) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    drop(told);
    turn
}

/// Encrypts and writes one chunk while the next is read.
async fn send_tls(
    stream: &mut TlsStream<TcpStream>,
    outgoing: &mut Outgoing,
    limits: &Limits,
    mut patience: Patience,
) -> Result<(), ReplyError> {
    let mut chunk = read_chunk(outgoing, Vec::new()).await?;
    let mut spare = Vec::new();
    while !chunk.is_empty() {
        let (written, next) = tokio::join!(
            write_tls(stream, &chunk, limits, &mut patience),
            read_chunk(outgoing, std::mem::take(&mut spare))
        );
        written?;
        spare = std::mem::replace(&mut chunk, next?);
    }
    Ok(())
}

async fn write_tls(
    stream: &mut TlsStream<TcpStream>,
    mut chunk: &[u8],
    limits: &Limits,
    patience: &mut Patience,
) -> Result<(), ReplyError> {
    let mut flushed = false;
    while !flushed {
        // Both can be given up and tried again: neither loses count of what was written.
        let step = async {
            match chunk {
                [] => stream.flush().await.map(|()| 0),
                chunk => stream.write(chunk).await,
            }
        };
        match timeout(limits.stall, step).await {
            Ok(written) => {
                flushed = chunk.is_empty();
                chunk = &chunk[written?..];
            }
            Err(_) if patience.renewed(stream.get_ref().0) => {}
            Err(_) => return Err(ReplyError::Stalled(limits.stall)),
        }
        if !patience.keeps_up(stream.get_ref().0) {
            return Err(ReplyError::Slow(limits.slowest));
        }
    }
    Ok(())
}

async fn read_chunk(outgoing: &mut Outgoing, mut chunk: Vec<u8>) -> Result<Vec<u8>, ReplyError> {
    chunk.clear();
    if !outgoing.reads_files() {
        outgoing.fill(&mut chunk, TLS_CHUNK)?;
        return Ok(chunk);
    }
    let mut queue = std::mem::take(outgoing);
    let (queue, filled) = spawn_blocking(move || {
        let filled = queue.fill(&mut chunk, TLS_CHUNK).map(|()| chunk);
        (queue, filled)
    })
    .await
    .map_err(io::Error::from)?;
    *outgoing = queue;
    Ok(filled?)
}
