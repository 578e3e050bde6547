//! MODE S: fetches ranges one after the other, each over a data connection that this host opens,
//! and closes at the range's end.

use std::net::Shutdown;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::control::REPORT_PATIENCE;
use super::error::FtpError;
use super::passive_connection;
use super::remote_state::RemoteState;
use super::sessions::Session;
use super::unproved::compare;
use super::worker::FetchContext;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, Transport};
use crate::source::StreamPeer;
use crate::transfer::Stream;

/// The minimum range; a shorter one does not pay for its round trips and slow start.
const MIN_RANGE: Bytes = Bytes::mib(4);

/// Fetches ranges until nothing is left to lease; returns whether the session can be kept.
pub(super) fn fetch(
    context: &mut FetchContext<'_, '_>,
    session: &mut Session,
    stream: &mut Stream<'_>,
) -> Result<bool, Failure> {
    if !context.described.by_ranges {
        fetch_whole(context, session, stream)?;
        return Ok(true);
    }
    while stream.wait_for_work() {
        let share =
            Bytes::new(stream.unleased().get() / stream.wanted_streams().max(1) as u64).max(MIN_RANGE);
        let Some(range) = stream.lease_chunk(share) else { continue };
        fetch_range(context, session, stream, range)?;
    }
    Ok(true)
}

/// Fetches a range, then compares the state of the file.
fn fetch_range(
    context: &mut FetchContext<'_, '_>,
    session: &mut Session,
    stream: &mut Stream<'_>,
    range: ByteRange,
) -> Result<(), Failure> {
    let access = context.access;
    let cancel = stream.renew_cancel();
    let mut transport = passive_connection::retrieve(access, session, range.start(), &cancel)?;
    connected(&transport, stream, session);
    let received = receive(context, &mut transport, stream, false);
    // The sampler holds a duplicate of the socket, too.
    stream.end_connection();
    drop(transport);
    let reached = match received {
        Ok(reached) => reached,
        Err(FtpError::Failed(error)) => return Err(error),
        // The server's reply takes precedence over the error of the data connection.
        Err(error) => {
            let deadline = Deadline::new(&cancel, REPORT_PATIENCE);
            return Err(match session.control.reply("the transfer", &deadline) {
                Ok(reply) if !reply.is_positive() => session.control.refused("RETR", reply).into(),
                // The file may have become shorter.
                Ok(_) => compare_state(context, session, &cancel).err().unwrap_or(error).into(),
                Err(_) => error.into(),
            });
        }
    };
    // Another stream may have shortened the range: a transfer that ends before the end of the file
    // was aborted by this host.
    let broken_off = context.described.state.size.is_none_or(|size| reached < size.get());
    let is_whole = !broken_off && range.start() == 0;
    prove(context, session, broken_off, is_whole, stream.stop())?;
    context.worker.unproved.prove_all();
    Ok(())
}

/// Proves received bytes by the server's reply and the state of the file. `cancel` is not the
/// stream's flag: bytes must be proved even if nothing is left to lease.
///
/// A control connection that is idle during a long transfer may be lost: a further login then shows
/// the state. If that fails too, a file of the described size is accepted if one RETR has sent it
/// (`is_whole`), because no two versions can be mixed.
fn prove(
    context: &FetchContext<'_, '_>,
    session: &mut Session,
    broken_off: bool,
    is_whole: bool,
    cancel: &Cancel,
) -> Result<(), FtpError> {
    let (access, described, limit) = (context.access, &context.described.state, session.control.limit);
    let ended = passive_connection::end(&mut session.control, "RETR", broken_off, limit, cancel);
    let proved = ended.and_then(|()| match *described == RemoteState::default() {
        true => Ok(()),
        false => compare_state(context, session, cancel),
    });
    let Err(lost) = proved else { return Ok(()) };
    if !lost.loses_control() || described.size.is_none() {
        return Err(lost);
    }
    // The server may count the lost connection against its limit.
    let _ = session.control.transport.socket().shutdown(Shutdown::Both);
    match access.open(cancel) {
        Ok((opened, state)) => {
            compare(described, &state, access.at())?;
            *session = opened;
            tracing::warn!("no reply confirmed the data, but a further login shows the same file: {lost}");
        }
        Err(error) if is_whole && error.loses_control() => {
            tracing::warn!("no reply confirmed the data, which has the size of the file: {error}");
        }
        Err(error) if error.is_caused_by(Cause::Interrupted) => return Err(error),
        Err(_) => return Err(lost),
    }
    Ok(())
}

/// Fails if the file has changed since its description.
fn compare_state(
    context: &FetchContext<'_, '_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<(), FtpError> {
    let now = session.query_state(&context.access.address.path, cancel)?;
    compare(&context.described.state, &now, context.access.at())
}

fn connected(transport: &Transport, stream: &mut Stream<'_>, session: &Session) {
    let socket = transport.socket();
    stream.connected(socket, socket.peer_addr().unwrap_or(session.control.peer));
    stream.answered();
}

/// Receives the first lease, which shrinks as its bytes arrive, and when another stream steals its
/// tail; a whole file until the server ends it. Returns the offset that it has reached.
fn receive(
    context: &mut FetchContext<'_, '_>,
    transport: &mut Transport,
    stream: &mut Stream<'_>,
    is_whole: bool,
) -> Result<u64, FtpError> {
    let (at, size) = (|| context.access.at().to_owned(), context.described.state.size.unwrap_or_default());
    let stolen = || FtpError::from(Failure::stolen(context.worker.source.shown()));
    let mut reached = 0;
    loop {
        let left = stream.front().ok_or_else(stolen)?;
        let received = match left.is_empty() {
            true if !is_whole => break,
            true => transport.receive(&mut [0]),
            false => transport.receive(stream.buffer(left)?),
        };
        match received {
            Ok(Received::Data(_)) if left.is_empty() => {
                let message = format!("{} sent more than the {size} that were requested", at());
                return Err(Failure::new(FailureKind::Protocol, message).into());
            }
            Ok(Received::Data(n)) => {
                reached = left.start() + n as u64;
                let (own, _) = stream.delivered(n, left, transport.socket());
                context.worker.unproved.deliver(ByteRange::with_len(left.start(), own));
            }
            Ok(Received::Idle) => {}
            Ok(Received::End { .. }) if left.is_empty() => return Ok(reached),
            // Without a size, the end of the connection marks the end of the file; within TLS a
            // closing message is required, because a FIN can be forged.
            Ok(Received::End { clean }) if is_whole && size == Bytes::ZERO => {
                let got = stream.delivered_so_far();
                if clean || (context.described.state.size.is_some() && got == Bytes::ZERO) {
                    return Ok(reached);
                }
                let message = format!(
                    "{} ended a data connection without closing TLS, after {got}, and reports no size: bytes may be missing",
                    at()
                );
                return Err(Failure::new(FailureKind::Temporary, message).into());
            }
            Ok(Received::End { .. }) => {
                return Err(FtpError::ClosedEarly { at: at(), got: stream.delivered_so_far() });
            }
            Err(source) => return Err(FtpError::Data { at: at(), source }),
        }
        stream.check_alive(context.worker.source.shown())?;
    }
    stream.flush();
    if stream.complete() { Ok(reached) } else { Err(stolen()) }
}

/// Fetches the whole file by one RETR, because nothing shows that two of them would read one
/// version.
fn fetch_whole(
    context: &mut FetchContext<'_, '_>,
    session: &mut Session,
    stream: &mut Stream<'_>,
) -> Result<(), Failure> {
    let access = context.access;
    if context.worker.is_begun {
        if stream.lease_chunk(Bytes::new(u64::MAX)).is_none() {
            return Ok(());
        }
        stream.forget_delivered()?;
        context.worker.unproved.prove_all();
        stream.restart();
    }
    context.worker.is_begun = true;
    let cancel = stream.renew_cancel();
    let mut transport = passive_connection::retrieve(access, session, 0, &cancel)?;
    connected(&transport, stream, session);
    receive(context, &mut transport, stream, true)?;
    stream.end_connection();
    prove(context, session, false, true, stream.stop())?;
    context.worker.unproved.prove_all();
    stream.flush();
    stream.complete();
    Ok(())
}
