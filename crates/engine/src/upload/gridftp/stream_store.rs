//! A store in one stream (MODE S): the file from an offset to its end, over one data connection that this host opens.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::event::Event;
use longhaul_core::proto::gridftp::Reply;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::tcp_info;
use rustix::event::PollFlags;

use super::FtpUpload;
use crate::connect::{Deadline, Transport};
use crate::send::{SendError, Supply, TURN, Turn};
use crate::source::gridftp::{FtpError, StoreSession, StoreStart};
use crate::source::http::UrlAndPeer;
use crate::threads::add;
use crate::upload::body::{DropBehind, Stall, TICK, wait_for};
use crate::upload::error::UploadError;

/// Sends the file from `offset` on, and returns once the server has stored all of it.
///
/// # Errors
/// [`UploadError`].
pub(super) fn send(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    offset: Bytes,
) -> Result<(), UploadError> {
    let progress = upload.progress;
    let Transport::Plain(socket) = session.connect_stream(&progress.cancel)? else {
        return Err(session.unencrypted_only().into());
    };
    let at = upload.at(session);
    let start = if offset == Bytes::ZERO { StoreStart::Anew } else { StoreStart::From(offset) };
    let verb = session.begin(start, progress.size - offset, &progress.cancel)?;
    await_begin(session, verb, upload)?;
    let rtt = tcp_info::read(&socket).ok().and_then(|info| info.rtt());
    progress.sockets().add(0, &socket);
    progress.emit(&Event::Connected { stream: 0, peer: session.peer(), rtt });
    let sent = send_all(upload, session, (&socket, &at), offset);
    progress.sockets().remove(0);
    progress.emit(&Event::Closed { stream: 0 });
    match sent {
        Ok(reply) if reply.is_positive() => Ok(()),
        Ok(reply) => Err(session.refused(verb, reply).into()),
        // The server's report explains more than the kernel's error.
        Err(error @ UploadError::Send { .. }) => {
            drop(socket);
            match session.finish(verb, REPORT_PATIENCE, &progress.cancel) {
                Err(refused @ FtpError::Refused { .. }) => Err(refused.into()),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// The server's report of a broken transfer is waited for so long.
const REPORT_PATIENCE: Duration = Duration::from_secs(2);

/// Waits until the server begins to receive.
fn await_begin(
    session: &mut StoreSession<'_>,
    verb: &'static str,
    upload: &FtpUpload<'_, '_>,
) -> Result<(), UploadError> {
    let deadline = Deadline::new(&upload.progress.cancel, upload.request.client.timeouts.head);
    loop {
        match session.poll_for_a_tick()? {
            Some(reply) if reply.is_preliminary() => return Ok(()),
            Some(reply) => return Err(session.refused(verb, reply).into()),
            None => upload.progress.check_cancel()?,
        }
        if deadline.left().is_zero() {
            return Err(session.timeout("beginning to receive", deadline.limit).into());
        }
    }
}

/// Sends the file and the end of the connection, which is that of the file; returns the reply that ends the store.
fn send_all(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    (socket, at): (&TcpStream, &UrlAndPeer),
    offset: Bytes,
) -> Result<Reply, UploadError> {
    let progress = upload.progress;
    let broken = |source| UploadError::Send { at: at.clone(), source };
    let aborted = || broken(ErrorKind::ConnectionAborted.into());
    socket.set_nonblocking(true).map_err(broken)?;
    let range = ByteRange::new(offset.get(), progress.size.get());
    let mut supply = Supply::open(upload.source, upload.reader, range)
        .map_err(|error| UploadError::cannot_read(upload.source.path().clone(), error))?;
    progress.begin_part(offset, supply.ring());
    let pace = upload.shared_pace();
    let paced = pace.pace(socket);
    paced.resume();
    let mut behind = DropBehind::of(upload.source, upload.reader);
    let mut stall = Stall::new(socket, upload.request.stall);
    let mut is_done = supply.is_done();
    while !is_done {
        progress.check_cancel()?;
        let ready = wait_for(socket, true, TICK);
        match session.poll()? {
            // It has taken a broken connection for the end of the file.
            Some(reply) if reply.is_positive() => return Err(aborted()),
            Some(reply) if !reply.is_preliminary() => return Ok(reply),
            _ => {}
        }
        if ready.intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(socket.take_error().ok().flatten().map_or_else(aborted, broken));
        }
        if ready.contains(PollFlags::OUT) {
            let turn = supply.turn(socket, progress.share(TURN));
            add(&progress.transfer.waits.writer, supply.take_waited());
            progress.sent(supply.sent());
            is_done = turn.map_err(|error| match error {
                SendError::Socket(error) => broken(error),
                error => UploadError::of_reading(error),
            })? == Turn::Done;
        }
        if let Some(behind) = &mut behind {
            behind.follow(progress.snapshot().0.present, progress);
        }
        stall.check(socket).map_err(|error| error.at(at))?;
    }
    socket.shutdown(Shutdown::Write).map_err(broken)?;
    await_end(upload, session, (socket, at), stall)
}

/// Waits until everything is acknowledged, and the server has replied.
fn await_end(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    (socket, at): (&TcpStream, &UrlAndPeer),
    mut stall: Stall,
) -> Result<Reply, UploadError> {
    let mut acknowledged = Instant::now();
    loop {
        upload.progress.check_cancel()?;
        if let Some(reply) = session.poll_for_a_tick()?.filter(|reply| !reply.is_preliminary()) {
            return Ok(reply);
        }
        let outstanding = stall.check(socket).map_err(|error| error.at(at))?;
        if outstanding.is_some_and(|bytes| bytes > 0) {
            acknowledged = Instant::now();
        }
        if acknowledged.elapsed() > upload.request.stall {
            return Err(session.timeout("storing the file", upload.request.stall).into());
        }
    }
}
