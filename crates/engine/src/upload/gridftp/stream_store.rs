//! Stores a file in one stream (MODE S), from an offset to its end, over one data connection opened
//! by this host.

use std::io::ErrorKind;
use std::time::Instant;

use longhaul_core::proto::gridftp::Reply;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use rustix::event::PollFlags;

use super::FtpUpload;
use super::data_sender::DataSender;
use crate::send::{SendError, TURN, Turn};
use crate::source::gridftp::{StoreSession, StoreStart};
use crate::source::http::UrlAndPeer;
use crate::threads::add;
use crate::upload::ack_stall::AckStall;
use crate::upload::body::{DropBehind, SEND_CHECK_INTERVAL, wait_for};
use crate::upload::error::UploadError;
use crate::upload::range_worker::in_flight;

/// Sends the file from `offset` on, and returns once the server has stored all of it.
///
/// # Errors
/// [`UploadError`].
pub(super) fn send(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    offset: Bytes,
) -> Result<(), UploadError> {
    let progress = upload.context.progress;
    let mut transport = session.connect_stream(&progress.cancel)?;
    let at = upload.at(session);
    let start = if offset == Bytes::ZERO { StoreStart::Anew } else { StoreStart::From(offset) };
    let verb = session.begin(start, progress.size - offset, &progress.cancel)?;
    session.await_begin(&mut transport, verb, &progress.cancel)?;
    let connection = DataSender::new(transport);
    let mut connection = connection.map_err(|error| UploadError::Send(at.clone(), error))?;
    progress.connected(connection.socket(), session.peer());
    let sent = send_all(upload, session, (&mut connection, &at), offset);
    progress.disconnected();
    match sent {
        Ok(reply) if reply.is_positive() => Ok(()),
        Ok(reply) => Err(session.control().refused(verb, reply).into()),
        // The server's reply explains more than the kernel's error.
        Err(error @ UploadError::Send(..)) => {
            drop(connection);
            Err(session.control().explain(verb, error, &progress.cancel))
        }
        Err(error) => Err(error),
    }
}

/// Sends the file and closes the connection, which marks the end of the file; returns the reply
/// that ends the store.
fn send_all(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    (connection, at): (&mut DataSender, &UrlAndPeer),
    offset: Bytes,
) -> Result<Reply, UploadError> {
    let progress = upload.context.progress;
    let broken = |error| UploadError::Send(at.clone(), error);
    let aborted = || broken(ErrorKind::ConnectionAborted.into());
    let range = ByteRange::new(offset.get(), progress.size.get());
    let mut supply = upload.context.supply(range)?;
    progress.begin_part(offset, supply.ring());
    let pace = upload.context.shared_pace(upload.context.request.transfer.pace);
    let paced = pace.pace(connection.socket());
    paced.resume();
    let behind = DropBehind::of(&upload.context);
    let mut stall = AckStall::new(connection.socket(), upload.context.request.transfer.stall, at.clone());
    let mut is_done = supply.is_done();
    while !is_done {
        progress.check_cancel()?;
        let ready = wait_for(connection.socket(), true, SEND_CHECK_INTERVAL);
        match session.control().poll_arrived()? {
            // The server took a broken connection for the end of the file.
            Some(reply) if reply.is_positive() => return Err(aborted()),
            Some(reply) if !reply.is_preliminary() => return Ok(reply),
            _ => {}
        }
        connection.check_open(ready).map_err(broken)?;
        if ready.contains(PollFlags::OUT) {
            let turn = connection.turn(&mut supply, progress.share(TURN));
            add(&progress.transfer.waits.writer, supply.take_waited());
            progress.sent(supply.sent());
            is_done = turn.map_err(|error| match error {
                SendError::Socket(error) => broken(error),
                SendError::Source(failure) => failure.into(),
            })? == Turn::Done;
        }
        behind.follow(progress, || progress.snapshot().0.present);
        stall.check(connection.socket())?;
    }
    connection.close_tls();
    while !connection.flush().map_err(broken)? {
        progress.check_cancel()?;
        wait_for(connection.socket(), true, SEND_CHECK_INTERVAL);
        stall.check(connection.socket())?;
    }
    connection.shutdown().map_err(broken)?;
    await_end(upload, session, (connection, at), stall)
}

/// Waits until everything is acknowledged and the server has replied.
fn await_end(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    (connection, at): (&mut DataSender, &UrlAndPeer),
    mut stall: AckStall,
) -> Result<Reply, UploadError> {
    let mut acknowledged = Instant::now();
    loop {
        upload.context.progress.check_cancel()?;
        if let Some(reply) = session.control().poll_reply()?.filter(|reply| !reply.is_preliminary()) {
            if reply.is_positive() {
                upload.await_acknowledgement(at, || in_flight(connection.socket()).unwrap_or_default())?;
            }
            connection.receive_tickets();
            return Ok(reply);
        }
        connection.receive_tickets();
        let outstanding = stall.check(connection.socket())?;
        if outstanding.is_some_and(|bytes| bytes > 0) {
            acknowledged = Instant::now();
        }
        if acknowledged.elapsed() > upload.context.request.transfer.stall {
            return Err(session
                .control()
                .timeout("storing the file", upload.context.request.transfer.stall)
                .into());
        }
    }
}
