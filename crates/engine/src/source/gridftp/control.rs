//! A control connection: sends commands and receives replies; every wait has a limit.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::Malformed;
use longhaul_core::proto::gridftp::{Command, Reply, ReplyReader};
use longhaul_core::units::Rtt;
use longhaul_sys::tcp_info;
use rustls::ClientConnection;

use super::error::FtpError;
use super::gsi::ControlSecurity;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, Transport, wait_readable};

/// The bytes read from a control connection at once: replies are short.
const REPLY_BUFFER: usize = 16 << 10;
/// The number of commands sent ahead of their replies; they fit into socket buffers of 64 KiB.
const MAX_FLIGHT: usize = 64;
/// The timeout for the server's reply after a data connection breaks: a round trip of a long path,
/// and the server's processing time.
pub(super) const REPORT_PATIENCE: Duration = Duration::from_secs(2);

/// A control connection, which may be kept between files.
pub(crate) struct ControlConnection {
    pub(super) transport: Transport,
    /// The URL without secrets, for errors.
    at: String,
    pub(super) peer: SocketAddr,
    /// The local address.
    pub(super) local: SocketAddr,
    replies: ReplyReader,
    security: Option<Security>,
    /// A reply that arrived before it was awaited.
    early: Option<Reply>,
    /// The timeout for one reply.
    pub(super) limit: Duration,
    /// Whether commands are sent one by one, because the server loses those that arrive in one
    /// flight.
    is_sequential: bool,
}

/// The GSI context of the connection, and the replies within its tokens.
struct Security {
    gsi: ControlSecurity,
    replies: ReplyReader,
}

impl ControlConnection {
    pub(super) fn new(
        transport: Transport,
        peer: SocketAddr,
        limit: Duration,
        at: &str,
        is_sequential: bool,
    ) -> Result<Self, FtpError> {
        let local = transport.socket().local_addr();
        let local = local.map_err(|source| FtpError::Send { at: at.to_owned(), source })?;
        Ok(Self {
            transport,
            at: at.to_owned(),
            peer,
            local,
            replies: ReplyReader::default(),
            security: None,
            early: None,
            limit,
            is_sequential,
        })
    }

    /// Returns the URL without secrets.
    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// Names the URL that errors refer to from now on.
    pub(super) fn set_url(&mut self, at: &str) {
        at.clone_into(&mut self.at);
    }

    /// Switches to TLS, and completes its handshake.
    ///
    /// # Errors
    /// [`FtpError::WrongData`] if data follows the server's consent: it arrived in clear and must
    /// not be trusted.
    pub(super) fn begin_tls(
        self,
        session: ClientConnection,
        deadline: &Deadline<'_>,
    ) -> Result<Self, FtpError> {
        let mut control = match self.transport {
            Transport::Plain(socket) if !self.replies.has_pending() => {
                Self { transport: Transport::tls(session, socket), ..self }
            }
            _ => return Err(self.unrequested("text before TLS")),
        };
        while control
            .transport
            .await_handshake()
            .map_err(|source| FtpError::of_receive(&control.at, source))?
        {
            check(deadline, &control.at, "the TLS handshake")?;
        }
        Ok(control)
    }

    /// Switches to protection of every command and reply by GSI.
    pub(super) fn protect(&mut self, gsi: ControlSecurity) {
        self.security = Some(Security { gsi, replies: ReplyReader::default() });
    }

    /// Returns the RTT of the connection.
    pub(super) fn rtt(&self) -> Option<Rtt> {
        tcp_info::read(self.transport.socket()).ok().and_then(|info| info.rtt())
    }

    /// Sends commands in one flight.
    ///
    /// # Errors
    /// [`FtpError`]; the connection is then unusable.
    pub(super) fn send(&mut self, commands: &[Command<'_>], cancel: &Cancel) -> Result<(), FtpError> {
        self.send_by(commands, &Deadline::new(cancel, self.limit))
    }

    fn send_by(&mut self, commands: &[Command<'_>], deadline: &Deadline<'_>) -> Result<(), FtpError> {
        let mut flight = Vec::new();
        for command in commands {
            tracing::debug!(target: "longhaul::ftp", "> {command}");
            let line =
                command.encode().map_err(|source| FtpError::Command { at: self.at.clone(), source })?;
            match &mut self.security {
                Some(security) => flight.extend(security.gsi.wrap(&line)?),
                None => flight.extend_from_slice(&line),
            }
        }
        let mut pending = flight.as_slice();
        loop {
            match self.transport.send(&mut pending) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(source) => return Err(FtpError::Send { at: self.at.clone(), source }),
            }
            check(deadline, &self.at, "taking a command")?;
        }
    }

    /// Returns the next reply if it has arrived; waits up to one tick.
    ///
    /// # Errors
    /// [`FtpError`], also for the replies 221 and 421, after which the server closes the
    /// connection.
    pub(crate) fn poll_reply(&mut self) -> Result<Option<Reply>, FtpError> {
        if let Some(reply) = self.buffered_reply()? {
            return Ok(Some(reply));
        }
        let mut buffer = [0; REPLY_BUFFER];
        match self.transport.receive(&mut buffer) {
            Ok(Received::Data(n)) => self.replies.feed(&buffer[..n]),
            Ok(Received::Idle) => return Ok(None),
            Ok(Received::End { .. }) => return Err(FtpError::Closed { at: self.at.clone() }),
            Err(source) => return Err(FtpError::of_receive(&self.at, source)),
        }
        self.buffered_reply()
    }

    /// Returns the next reply if it has arrived; does not wait.
    ///
    /// # Errors
    /// See [`Self::poll_reply`].
    pub(crate) fn poll_arrived(&mut self) -> Result<Option<Reply>, FtpError> {
        if let Some(reply) = self.buffered_reply()? {
            return Ok(Some(reply));
        }
        let is_readable = wait_readable(self.transport.socket(), Duration::ZERO);
        if is_readable || self.transport.has_decrypted() { self.poll_reply() } else { Ok(None) }
    }

    /// Returns the reply that refuses the current command if it has arrived; does not wait. One
    /// that reports success is kept for [`Self::reply`].
    ///
    /// # Errors
    /// See [`Self::poll_reply`].
    pub(super) fn poll_refusal(&mut self) -> Result<Option<Reply>, FtpError> {
        let reply = self.poll_arrived()?.filter(|reply| !reply.is_preliminary());
        self.early = reply;
        Ok(self.early.take_if(|reply| !reply.is_positive()))
    }

    /// Returns the next reply among the bytes already read.
    ///
    /// # Errors
    /// See [`Self::poll_reply`].
    pub(super) fn buffered_reply(&mut self) -> Result<Option<Reply>, FtpError> {
        if let Some(reply) = self.early.take() {
            return Ok(Some(reply));
        }
        let reply = self.next_reply()?;
        if let Some(reply) = &reply {
            tracing::debug!(target: "longhaul::ftp", "< {reply}");
        }
        match reply {
            Some(reply) if reply.code == 421 => Err(FtpError::Busy { at: self.at.clone(), reply }),
            // Some servers close the connection after each transfer.
            Some(reply) if reply.code == 221 => Err(FtpError::Closed { at: self.at.clone() }),
            reply => Ok(reply),
        }
    }

    /// Returns the next reply, extracted from its token if the connection is protected.
    fn next_reply(&mut self) -> Result<Option<Reply>, FtpError> {
        let at = &self.at;
        let fail = |error: Malformed| {
            let message =
                format!("cannot use the reply of {at}: {error}; is this the right port and scheme?");
            Failure::new(FailureKind::Protocol, message)
        };
        let Some(security) = &mut self.security else { return Ok(self.replies.next_reply().map_err(fail)?) };
        loop {
            if let Some(reply) = security.replies.next_reply().map_err(fail)? {
                return Ok(Some(reply));
            }
            let Some(token) = self.replies.next_reply().map_err(fail)? else { return Ok(None) };
            security.replies.feed(&security.gsi.unwrap(&token)?);
        }
    }

    /// Waits for the next reply that is not preliminary, until the deadline; `step` completes "did
    /// not finish ...".
    ///
    /// # Errors
    /// [`FtpError`].
    pub(super) fn reply(&mut self, step: &'static str, deadline: &Deadline<'_>) -> Result<Reply, FtpError> {
        loop {
            match self.poll_reply()? {
                Some(reply) if reply.is_preliminary() => {}
                Some(reply) => return Ok(reply),
                None => {}
            }
            check(deadline, &self.at, step)?;
        }
    }

    /// Waits for the reply to a command that transfers no data. 226 ends a transfer: some servers
    /// send it twice.
    ///
    /// # Errors
    /// See [`Self::reply`].
    pub(super) fn answer(&mut self, step: &'static str, deadline: &Deadline<'_>) -> Result<Reply, FtpError> {
        loop {
            let reply = self.reply(step, deadline)?;
            if reply.code != 226 {
                return Ok(reply);
            }
        }
    }

    /// Drops the replies that have arrived while no command is outstanding.
    pub(super) fn drop_unrequested(&mut self) {
        while let Ok(Some(_)) = self.buffered_reply() {}
    }

    /// Sends a command and waits for its reply, until the deadline.
    ///
    /// # Errors
    /// See [`Self::ask`].
    pub(super) fn ask_by(
        &mut self,
        command: &Command<'_>,
        deadline: &Deadline<'_>,
    ) -> Result<Reply, FtpError> {
        self.send_by(std::slice::from_ref(command), deadline)?;
        self.answer(command.verb(), deadline)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// [`FtpError`], except for negative replies other than 421, which are returned.
    pub(super) fn ask(&mut self, command: &Command<'_>, cancel: &Cancel) -> Result<Reply, FtpError> {
        self.ask_by(command, &Deadline::new(cancel, self.limit))
    }

    /// Sends a command and waits until the server has executed it.
    ///
    /// # Errors
    /// [`FtpError`], also for a negative reply.
    pub(super) fn demand(&mut self, command: &Command<'_>, cancel: &Cancel) -> Result<(), FtpError> {
        let reply = self.ask(command, cancel)?;
        self.require_positive(reply, command.verb())
    }

    /// Sends commands in flights, and waits for their replies.
    ///
    /// # Errors
    /// See [`Self::ask`].
    pub(super) fn ask_all(
        &mut self,
        commands: &[Command<'_>],
        cancel: &Cancel,
    ) -> Result<Vec<Reply>, FtpError> {
        let mut replies = Vec::new();
        for flight in commands.chunks(self.flight()) {
            self.send(flight, cancel)?;
            for command in flight {
                replies.push(self.answer(command.verb(), &Deadline::new(cancel, self.limit))?);
            }
        }
        Ok(replies)
    }

    /// Returns the number of commands to send before their replies are awaited.
    pub(super) fn flight(&self) -> usize {
        if self.is_sequential { 1 } else { MAX_FLIGHT }
    }

    /// Creates the error of a reply that refuses `verb`.
    pub(crate) fn refused(&self, verb: &'static str, reply: Reply) -> FtpError {
        FtpError::Refused { at: self.at.clone(), verb, reply }
    }

    /// Fails if `reply` refuses `verb`.
    pub(super) fn require_positive(&self, reply: Reply, verb: &'static str) -> Result<(), FtpError> {
        if reply.is_positive() { Ok(()) } else { Err(self.refused(verb, reply)) }
    }

    /// Returns the server's refusal of `verb` if it arrives soon, else `error` of the data
    /// connection, which explains less.
    pub(crate) fn explain<E: From<FtpError>>(&mut self, verb: &'static str, error: E, cancel: &Cancel) -> E {
        match self.reply("the transfer", &Deadline::new(cancel, REPORT_PATIENCE)) {
            Ok(reply) if !reply.is_positive() => self.refused(verb, reply).into(),
            _ => error,
        }
    }

    /// Creates the error of an unexpected reply or data.
    pub(crate) fn unrequested(&self, what: &str) -> FtpError {
        FtpError::unrequested(&self.at, what)
    }

    /// Creates the error of a step that took too long.
    pub(crate) fn timeout(&self, step: &'static str, waited: Duration) -> FtpError {
        FtpError::timeout(&self.at, step, waited)
    }

    /// Returns whether the connection can be kept: no bytes of an earlier exchange are pending, and
    /// the server has not closed it.
    pub(super) fn is_quiet(&mut self) -> bool {
        let has_pending = self.replies.has_pending()
            || self.security.as_ref().is_some_and(|security| security.replies.has_pending());
        !has_pending
            && self.early.is_none()
            && self.transport.poll_readable(&mut [0], Duration::ZERO).is_none()
    }
}

/// Fails once the deadline has passed or the transfer is cancelled.
pub(super) fn check(deadline: &Deadline<'_>, at: &str, step: &'static str) -> Result<(), FtpError> {
    deadline.check_cancel()?;
    if deadline.left().is_zero() {
        return Err(FtpError::timeout(at, step, deadline.limit));
    }
    Ok(())
}
