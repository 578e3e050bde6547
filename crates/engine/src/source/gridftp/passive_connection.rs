//! A passive data connection, which this host opens (EPSV, PASV), in MODE S (RFC 959, 2428, 3659).

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::gridftp::{Command, ListingForm, parse_epsv, parse_pasv};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::control::{ControlConnection, check};
use super::error::FtpError;
use super::login::ServerAccess;
use super::sessions::Session;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, Transport, dial};

/// The timeout of a connection to the port of EPSV, in RTTs, after which PASV is tried.
const EPSV_RTTS: u32 = 4;
/// The minimum of this timeout: less than the second after which another stream takes over the
/// range.
const MIN_EPSV_PATIENCE: Duration = Duration::from_millis(500);

/// Connects to the server and starts fetching the file from `start` to its end.
///
/// # Errors
/// [`FtpError`].
pub(super) fn retrieve(
    access: &ServerAccess<'_>,
    session: &mut Session,
    start: u64,
    cancel: &Cancel,
) -> Result<Transport, FtpError> {
    session.use_mode_stream(cancel)?;
    let mut transport = connect(access, session, cancel)?;
    let path = &access.address.path;
    let commands = match start {
        // From the start of the file, REST is not needed.
        0 => vec![Command::Retr(path)],
        start => vec![Command::Rest(start), Command::Retr(path)],
    };
    let control = &mut session.control;
    control.send(&commands, cancel)?;
    if let [Command::Rest(_), _] = commands[..] {
        let reply = control.answer("REST", &Deadline::new(cancel, control.limit))?;
        if !reply.is_intermediate() {
            return Err(control.refused("REST", reply));
        }
    }
    await_begin(access, session, &mut transport, "RETR", cancel)?;
    Ok(transport)
}

/// Connects to the server and starts listing the directory: by MLSD, or by LIST if the server lacks
/// it. LIST changes the current directory.
///
/// # Errors
/// See [`retrieve`].
pub(super) fn list(
    access: &ServerAccess<'_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<(Transport, ListingForm), FtpError> {
    session.use_mode_stream(cancel)?;
    let mut refusal = None;
    if !access.sessions.quirks(&session.key).lacks_mlsd {
        match begin_listing(access, session, Command::Mlsd(&access.address.path), cancel) {
            Err(error @ FtpError::Refused { .. }) => refusal = Some(error),
            begun => return Ok((begun?, ListingForm::Facts)),
        }
    }
    // LIST without an argument, in which servers expand wildcards, split words and look for
    // options.
    let entered = session.control.demand(&Command::Cwd(&access.address.path), cancel);
    let listed = entered.and_then(|()| begin_listing(access, session, Command::List, cancel));
    match (listed, refusal) {
        (Ok(transport), _) => {
            access.sessions.learn(&session.key, |quirks| quirks.lacks_mlsd = true);
            Ok((transport, ListingForm::Columns))
        }
        // Not due to MLSD, which the server knows.
        (Err(FtpError::Refused { .. }), Some(refusal)) if session.features.lists("MLST") => Err(refusal),
        (Err(error), _) => Err(error),
    }
}

fn begin_listing(
    access: &ServerAccess<'_>,
    session: &mut Session,
    command: Command<'_>,
    cancel: &Cancel,
) -> Result<Transport, FtpError> {
    let mut transport = connect(access, session, cancel)?;
    session.control.send(&[command], cancel)?;
    await_begin(access, session, &mut transport, command.verb(), cancel)?;
    Ok(transport)
}

/// Waits until the server begins the transfer, and until the TLS handshake of the data connection
/// is complete.
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
    let control = &mut session.control;
    let broken = |control: &mut ControlConnection, source| {
        let error = FtpError::of_handshake(control.at(), source);
        if let FtpError::Tls { .. } = error { error } else { control.explain(verb, error, cancel) }
    };
    let deadline = Deadline::new(cancel, control.limit);
    loop {
        // Globus replies only after the data connection is authenticated, other servers before.
        transport.continue_handshake().map_err(|source| broken(control, source))?;
        match control.poll_reply()? {
            Some(reply) if reply.is_preliminary() => break,
            Some(reply) => return Err(control.refused(verb, reply)),
            None => check(&deadline, control.at(), "beginning the transfer")?,
        }
    }
    let deadline = Deadline::new(cancel, access.handshake_limit());
    while transport.await_handshake().map_err(|source| broken(control, source))? {
        if let Some(reply) = control.poll_refusal()? {
            return Err(control.refused(verb, reply));
        }
        let peer = transport.socket().peer_addr().unwrap_or(control.peer);
        check_handshake(&deadline, control.at(), peer)?;
    }
    Ok(())
}

/// Fails once the deadline of a data connection's TLS handshake has passed.
///
/// # Errors
/// That of the timeout, or [`Failure::interrupted`].
pub(super) fn check_handshake(deadline: &Deadline<'_>, at: &str, peer: SocketAddr) -> Result<(), FtpError> {
    deadline.check_cancel()?;
    if deadline.left().is_zero() {
        let message = format!(
            "{at} did not finish the TLS handshake of a data connection ({peer}) within {:?}; try again later, or set \
             --connect-timeout to more",
            deadline.limit
        );
        return Err(Failure::new(FailureKind::Temporary, message).into());
    }
    Ok(())
}

/// Requests the server's address for data connections, by EPSV or else by PASV. The host is that of
/// the control connection.
pub(super) fn address(control: &mut ControlConnection, cancel: &Cancel) -> Result<SocketAddr, FtpError> {
    match ask_address(control, &Command::Epsv, cancel) {
        Err(FtpError::Passive { .. }) => ask_address(control, &Command::Pasv, cancel),
        found => found,
    }
}

fn ask_address(
    control: &mut ControlConnection,
    command: &Command<'_>,
    cancel: &Cancel,
) -> Result<SocketAddr, FtpError> {
    let server = control.peer.ip();
    let reply = control.ask(command, cancel)?;
    let address = match command {
        Command::Epsv => parse_epsv(&reply, server),
        _ => parse_pasv(&reply, server),
    };
    let address = address.map_err(|source| FtpError::Passive { at: control.at().to_owned(), source })?;
    // The address of the control connection may have a zone.
    let mut there = control.peer;
    there.set_port(address.port());
    Ok(if address.ip() == server { there } else { address })
}

/// Opens a data connection to the host of the control connection: to the port of EPSV, or else to
/// that of PASV, which firewalls and load balancers may handle although they ignore EPSV.
pub(super) fn connect(
    access: &ServerAccess<'_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<Transport, FtpError> {
    let timeout = access.config.timeouts.connect;
    let lacks_epsv = access.sessions.quirks(&session.key).lacks_epsv;
    let rtt = session.control.rtt().unwrap_or_default().get();
    let patience = timeout.min((rtt * EPSV_RTTS).max(MIN_EPSV_PATIENCE));
    let is_unreached = |error: &FtpError| error.is_caused_by(Cause::Unreachable);
    let extended = (!lacks_epsv).then(|| connect_by(Command::Epsv, patience, access, session, cancel));
    let socket = match extended {
        Some(Err(error)) if matches!(error, FtpError::Passive { .. }) || is_unreached(&error) => {
            tracing::debug!("PASV is used instead of EPSV: {error}");
            match connect_by(Command::Pasv, timeout, access, session, cancel) {
                // Servers refuse PASV over IPv6, and a SYN may have been lost.
                Err(FtpError::Passive { .. }) if is_unreached(&error) => {
                    connect_by(Command::Epsv, timeout, access, session, cancel)
                }
                connected => {
                    access.sessions.learn(&session.key, |quirks| quirks.lacks_epsv = connected.is_ok());
                    connected
                }
            }
        }
        Some(connected) => connected,
        None => connect_by(Command::Pasv, timeout, access, session, cancel),
    }?;
    session.protection.over(socket, false).map_err(|error| FtpError::of_tls(access.at(), &error))
}

/// Opens a TCP connection to the address that the server names in the reply to `command`.
fn connect_by(
    command: Command<'_>,
    timeout: Duration,
    access: &ServerAccess<'_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<TcpStream, FtpError> {
    let address = ask_address(&mut session.control, &command, cancel)?;
    let deadline = Deadline::new(cancel, timeout);
    Ok(dial(&address.to_string(), &[address], access.config.sockets(), &deadline)?.0)
}

/// Waits for the reply that ends a retrieval. If this host has closed the data connection, any
/// reply counts, because it shows that the server noticed.
///
/// # Errors
/// [`FtpError::Refused`] if the server aborted the retrieval.
pub(super) fn end(
    control: &mut ControlConnection,
    verb: &'static str,
    broken_off: bool,
    limit: Duration,
    cancel: &Cancel,
) -> Result<(), FtpError> {
    if !broken_off {
        let reply = control.reply("the transfer", &Deadline::new(cancel, limit))?;
        control.drop_unrequested();
        return control.require_positive(reply, verb);
    }
    // Some servers send 426 and then 226, some only one: the reply to NOOP marks the end, except
    // with proftpd, which may send it while the transfer still ends.
    control.send(&[Command::Noop], cancel)?;
    let (mut noop, mut ended) = (false, false);
    for _ in 0..3 {
        let reply = control.reply("the transfer", &Deadline::new(cancel, limit))?;
        if reply.code == 200 {
            noop = true
        } else {
            ended = true
        }
        if noop && ended {
            return Ok(());
        }
    }
    Err(control.unrequested("more replies than commands"))
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
