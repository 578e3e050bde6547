//! The server side of an upload: stores a temporary file beside the target, verifies it, and
//! renames it.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::gridftp::{Command, Reply, parse_checksum, parse_size};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rtt};
use url::Url;

use super::control::ControlConnection;
use super::data_protection::DataProtection;
use super::error::FtpError;
use super::login::ServerAccess;
use super::passive_connection::{self, check_handshake};
use super::remote_address::RemoteAddress;
use super::sessions::{FtpSessions, Session};
use crate::cancel::Cancel;
use crate::connect::{Deadline, Transport, dial};
use crate::source::http::ClientConfig;

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

/// Algorithms for CKSM in order of preference: most CPUs have instructions for SHA-256 and SHA-1,
/// and SHA-512 is faster than MD5 without.
const PREFERRED: [Algorithm; 4] = [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Sha512, Algorithm::Md5];

/// The server, the path of the target, and its temporary path.
pub(crate) struct StoreTarget<'a> {
    access: ServerAccess<'a>,
    /// The final path of the file.
    target: Vec<u8>,
}

impl<'a> StoreTarget<'a> {
    /// Parses the target's URL; the temporary file is in the target's directory, and has `suffix`
    /// after the target's name.
    ///
    /// # Errors
    /// [`FtpError`] if the URL names no file, or the file of logins cannot be read.
    pub(crate) fn new(
        url: &Url,
        suffix: &str,
        config: &'a ClientConfig,
        sessions: &'a FtpSessions,
    ) -> Result<Self, FtpError> {
        // The login decides whether the path is relative or absolute.
        let mut access = ServerAccess::new(RemoteAddress::of(url)?, config, sessions)?;
        let temporary = temporary_path(&access.address.path, suffix);
        let target = std::mem::replace(&mut access.address.path, temporary);
        Ok(Self { access, target })
    }

    /// Logs in, or takes a kept session.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn open(&self, cancel: &Cancel) -> Result<StoreSession<'_>, FtpError> {
        let (session, state) = self.access.open_for_any(cancel)?;
        // If the server does not report a file, it does not exist, or storing it will be refused.
        let held = state.ok().and_then(|state| state.size);
        Ok(StoreSession { store: self, session, held, has_computed: false })
    }
}

/// The maximum length of a name on file systems in bytes (NAME_MAX of Linux).
const MAX_NAME_LENGTH: usize = 255;

/// Returns the temporary path: the target's name, truncated if necessary, and `suffix`.
fn temporary_path(target: &[u8], suffix: &str) -> Vec<u8> {
    let name = target.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut end = target.len().min(name + MAX_NAME_LENGTH.saturating_sub(suffix.len()));
    // Not within a character of UTF-8.
    while end < target.len() && end > name && target[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    [&target[..end], suffix.as_bytes()].concat()
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

impl<'a> StoreSession<'a> {
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
        if !self.session.is_extended {
            self.session.control.demand(&Command::ModeExtended, cancel)?;
            self.session.is_extended = true;
        }
        // Data connections kept from a fetch cannot be used in the other direction.
        self.session.data = None;
        passive_connection::address(&mut self.session.control, cancel)
    }

    /// Creates a dialler for an address returned by [`Self::listen_for_blocks`].
    pub(crate) fn dialler(&self, address: SocketAddr) -> BlockDialler<'a> {
        BlockDialler { access: &self.store.access, address, protection: self.session.protection.clone() }
    }

    /// Opens the data connection of a store in one stream, before its command: some servers accept
    /// the connection first.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn connect_stream(&mut self, cancel: &Cancel) -> Result<Transport, FtpError> {
        let access = &self.store.access;
        self.session.use_mode_stream(cancel)?;
        passive_connection::connect(access, &mut self.session, cancel)
    }

    /// Sends the commands that start a store; announces `size`. The replies are read from
    /// [`Self::control`].
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

    /// Waits until the server starts to receive over a connection of [`Self::connect_stream`],
    /// whose TLS handshake is then complete.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn await_begin(
        &mut self,
        transport: &mut Transport,
        verb: &'static str,
        cancel: &Cancel,
    ) -> Result<(), FtpError> {
        passive_connection::await_begin(&self.store.access, &mut self.session, transport, verb, cancel)
    }

    /// Returns whether a store in one stream can start at an offset.
    pub(crate) fn resumes_streams(&self) -> bool {
        self.session.features.restarts_streams()
    }

    /// Returns the algorithm for comparing checksums; `None` if the server offers none.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        PREFERRED.into_iter().find(|algorithm| self.session.features.checksum(*algorithm))
    }

    /// Requests the checksums of ranges of the temporary file, or of the whole file of expected
    /// size `size`; returns `None` for each if the server does not implement CKSM.
    ///
    /// # Errors
    /// [`FtpError`], also for any other refusal.
    pub(crate) fn checksums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[Option<ByteRange>],
        size: Bytes,
        cancel: &Cancel,
    ) -> Result<Vec<Option<Checksum>>, FtpError> {
        let file = (&self.store.access.address.path[..], size);
        let replies = self.session.checksums(algorithm, ranges, file, cancel)?;
        replies.into_iter().map(|reply| self.checksum_of(reply, algorithm)).collect()
    }

    /// Reads the reply to CKSM; `None` if the command is unknown to the server, which is accepted
    /// only before the first checksum.
    fn checksum_of(&mut self, reply: Reply, algorithm: Algorithm) -> Result<Option<Checksum>, FtpError> {
        let is_unknown = matches!(reply.code, 500 | 502 | 504) && !self.has_computed;
        match parse_checksum(&reply, algorithm) {
            Some(checksum) => {
                self.has_computed = true;
                Ok(Some(checksum))
            }
            None if is_unknown => Ok(None),
            None => Err(self.session.control.refused("CKSM", reply)),
        }
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

/// Opens data connections of MODE E, from any thread.
pub(crate) struct BlockDialler<'a> {
    access: &'a ServerAccess<'a>,
    pub(crate) address: SocketAddr,
    protection: DataProtection,
}

impl BlockDialler<'_> {
    /// Opens a data connection, encrypted like those of the session, and completes its handshake.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn dial(&self, cancel: &Cancel) -> Result<Transport, FtpError> {
        let (at, config) = (self.access.at(), self.access.config);
        let deadline = Deadline::new(cancel, config.timeouts.connect);
        let (socket, _) = dial(&self.address.to_string(), &[self.address], config.sockets(), &deadline)?;
        let transport = self.protection.over(socket, false);
        let mut transport = transport.map_err(|error| FtpError::of_tls(at, &error))?;
        let Transport::Tls(_) = transport else { return Ok(transport) };
        // Nothing is sent to an unverified peer.
        let deadline = Deadline::new(cancel, self.access.handshake_limit());
        while transport.await_handshake().map_err(|source| FtpError::of_handshake(at, source))? {
            check_handshake(&deadline, at, self.address)?;
        }
        match transport.poll_readable(&mut [0], Duration::ZERO) {
            None => Ok(transport),
            Some(0) => Err(FtpError::ClosedEarly { at: at.to_owned(), got: Bytes::ZERO }),
            Some(_) => Err(FtpError::unrequested(at, "data")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_name_is_beside_the_target_and_never_too_long() {
        assert_eq!(temporary_path(b"/a/b", ".x"), b"/a/b.x");
        assert_eq!(temporary_path(b"b", ".x"), b"b.x");
        let long = [b"/dir/".as_slice(), "\u{e9}".repeat(127).as_bytes()].concat();
        let path = temporary_path(&long, ".0123456789");
        assert_eq!(&path[..5], b"/dir/");
        assert!(path.len() - 5 <= MAX_NAME_LENGTH && path.ends_with(b".0123456789"));
        assert!(String::from_utf8(path).is_ok());
    }
}
