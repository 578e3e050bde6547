//! The server side of an upload: stores a temporary file beside the target, verifies it, and renames it.

mod block_dialler;
mod checksums;
mod target;

use std::net::SocketAddr;
use std::time::SystemTime;

use longhaul_core::proto::gridftp::{Command, parse_size};
use longhaul_core::units::{Bytes, Rtt};

pub(crate) use block_dialler::BlockDialler;
pub(crate) use target::StoreTarget;

use super::control::ControlConnection;
use super::error::FtpError;
use super::sessions::{Mode, Session};
use super::stream_data_connection;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Transport};

/// The treatment of an existing temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreStart {
    /// As a new file: an existing one is truncated.
    Anew,
    /// Into the existing file, at the offsets of the blocks.
    Into,
    /// From an offset on, in one stream.
    From(Bytes),
}

/// A session that stores one file.
pub(crate) struct StoreSession<'a> {
    store: &'a StoreTarget<'a>,
    session: Session,
    /// The length of an existing temporary file when the session was opened.
    pub(crate) held: Option<Bytes>,
    /// Whether the server has computed a checksum before.
    has_computed: bool,
}

impl StoreSession<'_> {
    /// Returns the server's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.session.control.peer
    }

    /// Returns the control connection.
    pub(crate) fn control(&mut self) -> &mut ControlConnection {
        &mut self.session.control
    }

    /// Returns the RTT of the control connection.
    pub(crate) fn rtt(&self) -> Rtt {
        self.session.control.rtt().unwrap_or_default()
    }

    /// Returns whether the server accepts blocks at any offset over several connections.
    pub(crate) fn takes_blocks(&self) -> bool {
        let features = &self.session.features;
        features.extended_mode() && features.adjusted_store()
    }

    /// Selects MODE E, and returns the address at which the server accepts data connections.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn listen_for_blocks(&mut self, cancel: &Cancel) -> Result<SocketAddr, FtpError> {
        if self.session.mode != Mode::Extended {
            self.session.control.demand(&Command::ModeExtended, cancel)?;
            self.session.mode = Mode::Extended;
        }
        // Data connections kept from a fetch cannot be used in the other direction.
        self.session.data = None;
        stream_data_connection::address(&mut self.session.control, cancel)
    }

    /// Opens the data connection of a store in one stream, before its command: some servers accept the connection
    /// first.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn connect_stream(&mut self, cancel: &Cancel) -> Result<Transport, FtpError> {
        let access = &self.store.access;
        self.session.use_mode_stream(cancel)?;
        stream_data_connection::connect(access, &mut self.session, cancel)
    }

    /// Sends the commands that start a store; announces `size`. The replies are read from [`Self::control`].
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn begin(
        &mut self,
        start: StoreStart,
        size: Bytes,
        cancel: &Cancel,
    ) -> Result<&'static str, FtpError> {
        let path = &self.store.access.address.path;
        let control = &mut self.session.control;
        // The reply to ALLO is ignored: some servers do not support it or do not need it.
        let mut flight = vec![Command::Allo(size)];
        let store = match start {
            StoreStart::Anew => Command::Stor(path),
            StoreStart::Into => Command::EstoAdjusted(0, path),
            StoreStart::From(offset) => {
                flight.push(Command::Rest(offset.get()));
                Command::Stor(path)
            }
        };
        flight.push(store);
        for commands in flight.chunks(control.flight()) {
            control.send(commands, cancel)?;
            for command in commands.iter().filter(|command| **command != store) {
                let reply = control.reply(command.verb(), &Deadline::new(cancel, control.limit))?;
                if matches!(command, Command::Rest(_)) && !reply.is_intermediate() {
                    return Err(control.refused("REST", reply));
                }
            }
        }
        Ok(store.verb())
    }

    /// Waits until the server starts to receive over a connection of [`Self::connect_stream`], whose TLS handshake is then complete.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn await_begin(
        &mut self,
        transport: &mut Transport,
        verb: &'static str,
        cancel: &Cancel,
    ) -> Result<(), FtpError> {
        stream_data_connection::await_begin(&self.store.access, &mut self.session, transport, verb, cancel)
    }

    /// Returns whether a store in one stream can start at an offset.
    pub(crate) fn resumes_streams(&self) -> bool {
        self.session.features.restarts_streams()
    }

    /// Requests the length of the temporary file; `None` if the server does not report it.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn size(&mut self, cancel: &Cancel) -> Result<Option<Bytes>, FtpError> {
        let reply = self.session.control.ask(&Command::Size(&self.store.access.address.path), cancel)?;
        Ok(parse_size(&reply))
    }

    /// Sets the file's modification time, if supported, and renames the file to its final name.
    ///
    /// # Errors
    /// [`FtpError`]; the temporary file then still exists.
    pub(crate) fn rename(&mut self, modified: Option<SystemTime>, cancel: &Cancel) -> Result<(), FtpError> {
        let (path, target) = (&self.store.access.address.path, &self.store.target);
        let sets_time = self.session.features.lists("MFMT");
        // MFMT cannot express a time before 1970.
        let time = modified.filter(|time| sets_time && *time >= SystemTime::UNIX_EPOCH);
        let mut commands: Vec<_> = time.map(|time| Command::Mfmt(time, path)).into_iter().collect();
        commands.extend([Command::Rnfr(path), Command::Rnto(target)]);
        let replies = self.session.control.ask_all(&commands, cancel)?;
        for (command, reply) in commands.iter().zip(replies) {
            let done = match command {
                Command::Rnfr(_) => reply.is_intermediate(),
                // The file system may not store times.
                Command::Mfmt(..) => true,
                _ => reply.is_positive(),
            };
            if !done {
                return Err(self.session.control.refused(command.verb(), reply));
            }
        }
        Ok(())
    }

    /// Removes the temporary file; ignores a refusal.
    pub(crate) fn discard(&mut self, cancel: &Cancel) {
        let requested = self.session.control.ask(&Command::Dele(&self.store.access.address.path), cancel);
        if let Err(error) = requested {
            tracing::debug!("a temporary file was not removed: {error}");
        }
    }

    /// Keeps the session for the next file.
    pub(crate) fn keep(self) {
        self.store.access.sessions.keep(self.session);
    }
}
