//! A control connection: commands out, replies in, every wait bounded.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::proto::gridftp::{Command, Reply, ReplyReader};
use longhaul_core::units::Rtt;
use longhaul_sys::tcp_info;
use rustls::ClientConnection;

use super::error::FtpError;
use super::gsi::ControlSecurity;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, Transport};

/// How much is read of a control connection at once: replies are short.
const REPLY_BUFFER: usize = 16 << 10;
/// After a data connection breaks, the server's own report is waited for so long: a round trip of a long path, and the server's time.
pub(super) const REPORT_PATIENCE: Duration = Duration::from_secs(2);

/// A control connection; it may be kept between files.
pub(super) struct ControlConnection {
    transport: Transport,
    pub(super) peer: SocketAddr,
    /// This host's address.
    pub(super) local: SocketAddr,
    replies: ReplyReader,
    security: Option<Security>,
    /// How long one reply may take.
    pub(super) limit: Duration,
}

/// GSI over the connection, and the replies within its tokens.
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
    ) -> Result<Self, FtpError> {
        let local = transport.socket().local_addr();
        let local = local.map_err(|source| FtpError::Send { at: at.to_owned(), source })?;
        Ok(Self { transport, peer, local, replies: ReplyReader::default(), security: None, limit })
    }

    /// Returns the transport, to be waited for beside data connections.
    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Goes on within TLS. The handshake takes place with the next command, which is not sent before the server is verified.
    ///
    /// # Errors
    /// [`FtpError::Unrequested`] where the server has sent more than its consent: that came in clear and proves nothing.
    pub(super) fn begin_tls(self, session: ClientConnection, at: &str) -> Result<Self, FtpError> {
        match self.transport {
            Transport::Plain(socket) if !self.replies.has_pending() => {
                Ok(Self { transport: Transport::tls(session, socket), ..self })
            }
            _ => Err(FtpError::Unrequested { at: at.to_owned(), what: "text before TLS".to_owned() }),
        }
    }

    /// Goes on with every command and reply protected by GSI.
    pub(super) fn protect(&mut self, gsi: ControlSecurity) {
        self.security = Some(Security { gsi, replies: ReplyReader::default() });
    }

    /// Returns whether bytes were decrypted that have not been read.
    pub(super) fn has_decrypted(&mut self) -> bool {
        self.transport.has_decrypted()
    }

    /// Returns the RTT of the connection.
    pub(super) fn rtt(&self) -> Option<Rtt> {
        tcp_info::read(self.transport.socket()).ok().and_then(|info| info.rtt())
    }

    /// Sends commands in one flight.
    ///
    /// # Errors
    /// [`FtpError`]; the connection is then of no more use.
    pub(super) fn send(
        &mut self,
        commands: &[Command<'_>],
        at: &str,
        cancel: &Cancel,
    ) -> Result<(), FtpError> {
        let mut flight = Vec::new();
        for command in commands {
            tracing::debug!(target: "longhaul::ftp", "> {command}");
            let line = command.encode().map_err(|source| FtpError::Command { at: at.to_owned(), source })?;
            match &mut self.security {
                Some(security) => flight.extend(security.gsi.wrap(&line)?),
                None => flight.extend_from_slice(&line),
            }
        }
        let deadline = Deadline::new(cancel, self.limit);
        let mut pending = flight.as_slice();
        loop {
            match self.transport.send(&mut pending) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(source) => return Err(FtpError::Send { at: at.to_owned(), source }),
            }
            check(&deadline, at, "taking a command")?;
        }
    }

    /// Returns the next reply, where it has arrived by now; waits a tick at most.
    ///
    /// # Errors
    /// [`FtpError`]; 421 is one, as the server closes the connection after it.
    pub(super) fn poll_reply(&mut self, at: &str) -> Result<Option<Reply>, FtpError> {
        if let Some(reply) = self.buffered_reply(at)? {
            return Ok(Some(reply));
        }
        let mut buffer = [0; REPLY_BUFFER];
        match self.transport.receive(&mut buffer) {
            Ok(Received::Data(n)) => self.replies.feed(&buffer[..n]),
            Ok(Received::Idle) => return Ok(None),
            Ok(Received::End { .. }) => return Err(FtpError::Closed { at: at.to_owned() }),
            Err(source) => return Err(FtpError::of_receive(at, source)),
        }
        self.buffered_reply(at)
    }

    /// Returns the next reply of what has been read.
    ///
    /// # Errors
    /// As of [`Self::poll_reply`].
    pub(super) fn buffered_reply(&mut self, at: &str) -> Result<Option<Reply>, FtpError> {
        let reply = self.next_reply(at)?;
        if let Some(reply) = &reply {
            tracing::debug!(target: "longhaul::ftp", "< {reply}");
        }
        match reply {
            Some(reply) if reply.code == 421 => Err(FtpError::Busy { at: at.to_owned(), reply }),
            reply => Ok(reply),
        }
    }

    /// Returns the next reply, out of its token where the connection is protected.
    fn next_reply(&mut self, at: &str) -> Result<Option<Reply>, FtpError> {
        let fail = |source| FtpError::Reply { at: at.to_owned(), source };
        let Some(security) = &mut self.security else { return self.replies.next_reply().map_err(fail) };
        loop {
            if let Some(reply) = security.replies.next_reply().map_err(fail)? {
                return Ok(Some(reply));
            }
            let Some(token) = self.replies.next_reply().map_err(fail)? else { return Ok(None) };
            security.replies.feed(&security.gsi.unwrap(&token)?);
        }
    }

    /// Waits for the next reply that is not preliminary; `step` completes "did not finish ...".
    ///
    /// # Errors
    /// [`FtpError`].
    pub(super) fn reply(
        &mut self,
        step: &'static str,
        limit: Duration,
        at: &str,
        cancel: &Cancel,
    ) -> Result<Reply, FtpError> {
        let deadline = Deadline::new(cancel, limit);
        loop {
            match self.poll_reply(at)? {
                Some(reply) if reply.is_preliminary() => {}
                Some(reply) => return Ok(reply),
                None => {}
            }
            check(&deadline, at, step)?;
        }
    }

    /// Sends commands in one flight and waits for their replies.
    ///
    /// # Errors
    /// [`FtpError`]; no reply is one, whatever it says, but for 421.
    pub(super) fn ask(
        &mut self,
        commands: &[Command<'_>],
        at: &str,
        cancel: &Cancel,
    ) -> Result<Vec<Reply>, FtpError> {
        self.send(commands, at, cancel)?;
        let limit = self.limit;
        commands.iter().map(|command| self.reply(command.verb(), limit, at, cancel)).collect()
    }

    /// Returns whether the connection can be kept: nothing is left of an earlier exchange, and the server has not closed it.
    pub(super) fn is_quiet(&mut self) -> bool {
        let has_pending = self.replies.has_pending()
            || self.security.as_ref().is_some_and(|security| security.replies.has_pending());
        !has_pending && self.transport.poll_readable(&mut [0], Duration::ZERO).is_none()
    }
}

/// Fails once the time is over or the transfer cancelled.
pub(super) fn check(deadline: &Deadline<'_>, at: &str, step: &'static str) -> Result<(), FtpError> {
    deadline.check_cancel()?;
    if deadline.left().is_zero() {
        return Err(FtpError::Timeout { at: at.to_owned(), step, waited: deadline.limit });
    }
    Ok(())
}
