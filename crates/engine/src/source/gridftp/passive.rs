//! A data connection to the server in MODE S (RFC 959, 2428, 3659).

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::proto::gridftp::{Command, Reply, parse_epsv, parse_pasv};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::control::{ControlConnection, REPORT_PATIENCE, check};
use super::error::FtpError;
use super::login::ServerAccess;
use super::sessions::Session;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, Transport, dial};

/// Connects to the server and starts fetching the file from `start` to its end.
///
/// # Errors
/// [`FtpError`], also for a data address on another host than that of the control connection.
pub(super) fn retrieve(
    access: &ServerAccess<'_>,
    session: &mut Session,
    start: u64,
    cancel: &Cancel,
) -> Result<Transport, FtpError> {
    session.use_mode_stream(access.at(), cancel)?;
    let mut transport = connect(access, session, cancel)?;
    let path = &access.address.path;
    let commands = match start {
        // From the start of the file, REST is not needed.
        0 => vec![Command::Retr(path)],
        start => vec![Command::Rest(start), Command::Retr(path)],
    };
    session.control.send(&commands, access.at(), cancel)?;
    let refused = |verb, reply: Reply| FtpError::Refused { at: access.at().to_owned(), verb, reply };
    if let [Command::Rest(_), _] = commands[..] {
        let reply = session.control.reply("REST", session.control.limit, access.at(), cancel)?;
        if !reply.is_intermediate() {
            return Err(refused("REST", reply));
        }
    }
    await_begin(access, session, &mut transport, "RETR", cancel)?;
    Ok(transport)
}

/// Connects to the server and starts listing the directory.
///
/// # Errors
/// See [`retrieve`].
pub(super) fn list(
    access: &ServerAccess<'_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<Transport, FtpError> {
    session.use_mode_stream(access.at(), cancel)?;
    let mut transport = connect(access, session, cancel)?;
    session.control.send(&[Command::Mlsd(&access.address.path)], access.at(), cancel)?;
    await_begin(access, session, &mut transport, "MLSD", cancel)?;
    Ok(transport)
}

/// Waits until the server begins the transfer, and until the TLS handshake of the data connection is complete.
///
/// # Errors
/// [`FtpError`]. A refusal by the server takes precedence over the error of the data connection.
pub(super) fn await_begin(
    access: &ServerAccess<'_>,
    session: &mut Session,
    transport: &mut Transport,
    verb: &'static str,
    cancel: &Cancel,
) -> Result<(), FtpError> {
    let at = access.at();
    let control = &mut session.control;
    let refused = |reply| FtpError::Refused { at: at.to_owned(), verb, reply };
    let broken = |control: &mut ControlConnection, source| {
        let error = FtpError::of_handshake(at, source);
        if let FtpError::Tls { .. } = error {
            return error;
        }
        match control.reply("the transfer", REPORT_PATIENCE, at, cancel) {
            Ok(reply) if !reply.is_positive() => refused(reply),
            _ => error,
        }
    };
    let deadline = Deadline::new(cancel, control.limit);
    loop {
        // Globus replies only after the data connection is authenticated, other servers before.
        transport.continue_handshake().map_err(|source| broken(control, source))?;
        match control.poll_reply(at)? {
            Some(reply) if reply.is_preliminary() => break,
            Some(reply) => return Err(refused(reply)),
            None => check(&deadline, at, "beginning the transfer")?,
        }
    }
    let deadline = Deadline::new(cancel, access.handshake_limit());
    while transport.await_handshake().map_err(|source| broken(control, source))? {
        if let Some(reply) = control.poll_refusal(at)? {
            return Err(refused(reply));
        }
        let peer = transport.socket().peer_addr().unwrap_or(control.peer);
        check_handshake(&deadline, at, peer)?;
    }
    Ok(())
}

/// Fails once the deadline of a data connection's TLS handshake has passed.
///
/// # Errors
/// [`FtpError::HandshakeTimeout`].
pub(super) fn check_handshake(deadline: &Deadline<'_>, at: &str, peer: SocketAddr) -> Result<(), FtpError> {
    deadline.check_cancel()?;
    if deadline.left().is_zero() {
        return Err(FtpError::HandshakeTimeout { at: at.to_owned(), peer, waited: deadline.limit });
    }
    Ok(())
}

/// Requests the server's address for data connections; refuses an address on another host than that of the control
/// connection.
pub(super) fn address(
    access: &ServerAccess<'_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<SocketAddr, FtpError> {
    let at = access.at();
    let control = &mut session.control;
    let server = control.peer.ip();
    let passive = |source| FtpError::Passive { at: at.to_owned(), source };
    let mut reply = control.ask(&[Command::Epsv], at, cancel)?.pop();
    match &reply {
        Some(epsv) if epsv.is_positive() => parse_epsv(epsv, server).map_err(passive),
        _ => {
            reply = control.ask(&[Command::Pasv], at, cancel)?.pop();
            match &reply {
                Some(pasv) => parse_pasv(pasv, server).map_err(passive),
                None => Err(FtpError::Closed { at: at.to_owned() }),
            }
        }
    }
}

/// Opens a data connection to the host of the control connection.
pub(super) fn connect(
    access: &ServerAccess<'_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<Transport, FtpError> {
    let at = access.at();
    let address = address(access, session, cancel)?;
    let deadline = Deadline::new(cancel, access.config.timeouts.connect);
    let (socket, _) = dial(&address.to_string(), &[address], access.settings(), &deadline)?;
    session.protection.over_connected(socket).map_err(|error| FtpError::of_tls(at, &error))
}

/// Waits for the reply that ends a retrieval. If this host has closed the data connection, any reply counts, because it
/// shows that the server noticed.
///
/// # Errors
/// [`FtpError::Refused`] if the server aborted the retrieval.
pub(super) fn end(
    access: &ServerAccess<'_>,
    session: &mut Session,
    verb: &'static str,
    broken_off: bool,
    limit: Duration,
    cancel: &Cancel,
) -> Result<(), FtpError> {
    let at = access.at();
    if !broken_off {
        let reply = session.control.reply("the transfer", limit, at, cancel)?;
        return if reply.is_positive() {
            Ok(())
        } else {
            Err(FtpError::Refused { at: at.to_owned(), verb, reply })
        };
    }
    // Some servers send 426 and then 226, some only one: the reply to NOOP marks the end, except with proftpd, which
    // may send it while the transfer still ends.
    session.control.send(&[Command::Noop], at, cancel)?;
    let (mut noop, mut ended) = (false, false);
    for _ in 0..3 {
        let reply = session.control.reply("the transfer", limit, at, cancel)?;
        if reply.code == 200 {
            noop = true
        } else {
            ended = true
        }
        if noop && ended {
            return Ok(());
        }
    }
    Err(FtpError::Unrequested { at: at.to_owned(), what: "more replies than commands".into() })
}

/// Fetches a small range of the file.
///
/// # Errors
/// [`FtpError`].
pub(super) fn read_part(
    access: &ServerAccess<'_>,
    session: &mut Session,
    part: ByteRange,
    cancel: &Cancel,
) -> Result<Vec<u8>, FtpError> {
    let at = access.at();
    let mut transport = retrieve(access, session, part.start(), cancel)?;
    let deadline = Deadline::new(cancel, session.control.limit);
    let mut bytes = vec![0; part.len().as_usize()];
    let mut filled = 0;
    while filled < bytes.len() {
        match transport.receive(&mut bytes[filled..]) {
            Ok(Received::Data(n)) => filled += n,
            Ok(Received::Idle) => {}
            Ok(Received::End { .. }) => {
                return Err(FtpError::ClosedEarly { at: at.to_owned(), got: Bytes::new(filled as u64) });
            }
            Err(source) => return Err(FtpError::Data { at: at.to_owned(), source }),
        }
        check(&deadline, at, "sending a sample")?;
    }
    Ok(bytes)
}
