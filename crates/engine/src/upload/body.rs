//! Sends a part of the file as a request's body, and polls for an answer meanwhile, because a
//! server may refuse early.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_core::units::Bytes;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, fadvise};

use super::ack_stall::AckStall;
use super::context::UploadContext;
use super::error::UploadError;
use super::progress::UploadProgress;
use crate::send::{Reader, SendError, SourceFile, Supply, TURN, Turn};
use crate::source::http::{Connection, EarlyAnswer};
use crate::threads::add;

/// The interval of checks for cancellation and stalls.
pub(super) const SEND_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The file bytes encrypted at once.
const ENCRYPTED: Bytes = Bytes::kib(256);
/// The step in which pages are dropped from the cache.
const DROPPED: Bytes = Bytes::mib(8);

/// Sends a request after the last byte of a body, once ready; returns whether there is nothing more
/// to send.
pub(super) type TrailingRequest<'a> = dyn FnMut(&mut Connection) -> Result<bool, UploadError> + 'a;

/// Sends all of `supply` and the request of `trailing`, and waits until the server has acknowledged
/// everything or answers.
///
/// Returns whether everything was sent: a final answer ends the sending at once.
pub(super) fn send(
    connection: &mut Connection,
    supply: &mut Supply,
    context: &UploadContext<'_>,
    trailing: Option<&mut TrailingRequest<'_>>,
) -> Result<bool, UploadError> {
    let mut pump = Pump::new(connection, context.progress, context.request.transfer.stall);
    pump.run(connection, supply, &DropBehind::of(context), trailing)
}

/// Moves file bytes into one connection.
pub(super) struct Pump<'a> {
    progress: &'a UploadProgress<'a>,
    pub(super) stall: AckStall,
    clear: ClearText,
}

impl<'a> Pump<'a> {
    /// Creates the pump of a connection with the stall timeout `stall`.
    pub(super) fn new(connection: &Connection, progress: &'a UploadProgress<'a>, stall: Duration) -> Self {
        let stall = AckStall::new(connection.socket(), stall, connection.at().clone());
        Self { progress, stall, clear: ClearText::default() }
    }

    fn run(
        &mut self,
        connection: &mut Connection,
        supply: &mut Supply,
        behind: &DropBehind,
        mut trailing: Option<&mut TrailingRequest<'_>>,
    ) -> Result<bool, UploadError> {
        let mut all_sent = false;
        loop {
            self.progress.check_cancel()?;
            // The trailing request has its own waits.
            let limit = if all_sent && trailing.is_some() { Duration::ZERO } else { SEND_CHECK_INTERVAL };
            let ready = wait_for(connection.socket(), !all_sent, limit);
            if ready.contains(PollFlags::IN) {
                match connection.poll_answer()? {
                    EarlyAnswer::Final => return Ok(all_sent),
                    EarlyAnswer::Interim => self.stall.restart(),
                    EarlyAnswer::None => {}
                }
            }
            if !all_sent && !ready.is_empty() {
                let turn = self.turn(connection, supply);
                // An answer received before the connection broke explains more than the kernel's
                // error.
                if let Err(SendError::Socket(_)) = &turn
                    && connection.poll_answer().is_ok_and(|answer| answer == EarlyAnswer::Final)
                {
                    return Ok(false);
                }
                let turn = turn.map_err(|error| UploadError::of_send(error, connection.at()))?;
                all_sent = turn == Turn::Done;
                add(&self.progress.transfer.waits.writer, supply.take_waited());
                self.progress.sent(supply.sent());
                if all_sent {
                    connection.finish_body();
                }
            }
            behind.follow(self.progress, || self.progress.snapshot().0.present);
            if all_sent
                && let Some(request) = &mut trailing
                && request(connection)?
            {
                trailing = None;
            }
            let outstanding = self.stall.check(connection.socket())?;
            if all_sent && trailing.is_none() && outstanding == Some(0) {
                return Ok(true);
            }
        }
    }

    /// Sends some bytes without blocking, so that an answer is detected at once.
    pub(super) fn turn(
        &mut self,
        connection: &mut Connection,
        supply: &mut Supply,
    ) -> Result<Turn, SendError> {
        connection.socket().set_nonblocking(true).map_err(SendError::Socket)?;
        let turn = if connection.is_tls() {
            self.clear.turn(supply, self.progress.share(TURN), |pending| connection.send_body(pending))
        } else {
            supply.turn(connection.socket(), self.progress.share(TURN))
        };
        connection.socket().set_nonblocking(false).map_err(SendError::Socket)?;
        turn
    }
}

/// Bytes that TLS has yet to encrypt. Each `send` passes bytes to TLS, as that of a
/// [`Transport`](crate::connect::Transport) does.
#[derive(Default)]
pub(super) struct ClearText(Vec<u8>);

impl ClearText {
    /// Sends at most `share` bytes of the file; [`Turn::Done`] once `supply` is used up.
    pub(super) fn turn(
        &mut self,
        supply: &mut Supply,
        share: Bytes,
        mut send: impl FnMut(&mut &[u8]) -> io::Result<bool>,
    ) -> Result<Turn, SendError> {
        if !self.flush(&mut send).map_err(SendError::Socket)? {
            return Ok(Turn::Blocked);
        }
        supply.fill(&mut self.0, share.min(ENCRYPTED))?;
        Ok(match self.flush(&mut send).map_err(SendError::Socket)? {
            false => Turn::Blocked,
            true if supply.is_done() => Turn::Done,
            true => Turn::More,
        })
    }

    /// Queues bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Passes queued bytes to the kernel; returns whether none is left.
    pub(super) fn flush(&mut self, mut send: impl FnMut(&mut &[u8]) -> io::Result<bool>) -> io::Result<bool> {
        loop {
            let mut pending = self.0.as_slice();
            let sent = send(&mut pending);
            let taken = self.0.len() - pending.len();
            self.0.drain(..taken);
            match sent {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Drops sent and hashed pages from the cache.
pub(super) struct DropBehind {
    /// The file, if its reader fills the cache with pages that were not cached before.
    source: Option<Arc<SourceFile>>,
    /// The offset up to which pages are dropped.
    dropped: Mutex<Bytes>,
}

impl DropBehind {
    pub(super) fn of(context: &UploadContext<'_>) -> Self {
        let drops = context.reader == Reader::PageCache { drop_behind: true };
        Self { source: drops.then(|| Arc::clone(context.source)), dropped: Mutex::default() }
    }

    /// Drops pages that are hashed and `present` on the server: before that, the socket may have to
    /// retransmit them.
    pub(super) fn follow(&self, progress: &UploadProgress<'_>, present: impl FnOnce() -> Bytes) {
        let Some(source) = &self.source else { return };
        let mut dropped = self.dropped.lock();
        let done = present().min(Bytes::new(progress.hashed.load(Ordering::Relaxed)));
        if done >= *dropped + DROPPED {
            let length = NonZeroU64::new((done - *dropped).get());
            // Only a hint.
            let _ = fadvise(source.file(), dropped.get(), length, Advice::DontNeed);
            *dropped = done;
        }
    }
}

/// Waits up to `limit` until `socket` is readable, or with `writes` also writable.
pub(super) fn wait_for(socket: &TcpStream, writes: bool, limit: Duration) -> PollFlags {
    let wanted = PollFlags::IN | PollFlags::RDHUP | if writes { PollFlags::OUT } else { PollFlags::empty() };
    let mut fds = [PollFd::new(socket, wanted)];
    // An interrupted poll ends early; the caller polls again.
    let _ = poll(&mut fds, Timespec::try_from(limit).ok().as_ref());
    fds[0].revents()
}
