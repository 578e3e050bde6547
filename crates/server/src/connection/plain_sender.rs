//! Sends replies over plain connections: from files by sendfile(2), on threads of their disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_engine::send::{Outgoing, SendError, Turn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Timeouts;
use crate::connection::stall_detector::StallDetector;
use crate::connection::transport::ReplyError;
use crate::listen::{MORE_UNSENT, UnsentLimit};
use crate::paths::disks::{Disk, DiskPlace, Lent};

/// How long a connection may keep a blocking thread before other connections get it.
const BLOCKING_TURN: Duration = Duration::from_millis(20);

/// How long a blocking thread waits for its socket: at 10 Gbit/s half of the largest limit of
/// unsent data (`MORE_UNSENT`) is sent in 6.7 ms.
const SOCKET_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 8_000_000 };

/// A reply of at most this size is sent by the connection's task where its files are cached: that
/// takes less than a change of threads, and holds up other connections for less than a millisecond.
const SMALL_REPLY: Bytes = Bytes::kib(512);

/// Sends a reply, on threads of its disk where that may have to be waited for.
pub(crate) async fn send_plain(
    stream: &Arc<TcpStream>,
    outgoing: &mut Outgoing,
    (timeouts, sent, disk): (&Timeouts, &AtomicU64, Option<&Disk>),
) -> Result<(), ReplyError> {
    if sends_at_once(outgoing, disk) {
        let turn = take_turn(stream, outgoing)?;
        record_sent(outgoing, sent, stream);
        if turn == Turn::Done {
            return Ok(());
        }
    }
    let mut detector = StallDetector::new(stream, timeouts.stall, timeouts.slowest);
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

/// Stores the bytes that the socket has accepted; lets a peer that keeps up have more unsent bytes
/// in the kernel's buffer.
pub(crate) fn record_sent(outgoing: &Outgoing, sent: &AtomicU64, socket: &TcpStream) {
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

/// Sends turn after turn while the peer keeps up: a change of threads per turn would cost more than
/// the sending.
///
/// While the socket is full, the place is lent to other replies.
fn take_turns(stream: &TcpStream, outgoing: &mut Outgoing, place: &mut DiskPlace) -> Result<Turn, SendError> {
    let end = Instant::now() + BLOCKING_TURN;
    while Instant::now() < end {
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

/// Clears the runtime's readiness where the socket is full, so that `writable` waits; sends
/// nothing.
fn clear_readiness(stream: &TcpStream) {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let cleared = stream.try_io(Interest::WRITABLE, || match becomes_writable(stream, &NOW) {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    });
    drop(cleared);
}

/// Sends one turn; clears the runtime's readiness where the socket is full, so that `writable`
/// waits.
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
