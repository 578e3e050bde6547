//! What an upload asks a server for: to store a temporary file beside the target, to prove it, and to give it its name.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::gridftp::{Command, Reply, parse_checksum, parse_size};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate, Rtt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use url::Url;

use super::control::check;
use super::data_protection::DataProtection;
use super::error::FtpError;
use super::login::ServerAccess;
use super::passive;
use super::remote_address::RemoteAddress;
use super::sessions::{Mode, Session, Sessions};
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, SocketSettings, Transport, dial};
use crate::source::http::ClientConfig;

/// Algorithms that CKSM is asked for, the first that is offered: SHA-256 and SHA-1 have instructions of their own on most CPUs,
/// SHA-512 is faster than MD5 without.
const PREFERRED: [Algorithm; 4] = [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Sha512, Algorithm::Md5];
/// A server hashes and reads at least at this rate; a single disk reads faster, a busy one may not.
const SLOWEST_CHECKSUM: Rate = Rate::bytes_per_sec(10_000_000);
/// So many commands are sent ahead of their replies, which fit into socket buffers of 64 KiB.
const FLIGHT: usize = 64;

/// How to reach the server, and what the file is called there until it is complete.
pub(crate) struct StoreTarget<'a> {
    access: ServerAccess<'a>,
    /// The path that the file gets in the end.
    target: Vec<u8>,
}

impl<'a> StoreTarget<'a> {
    /// Takes the target's URL; the temporary file stands in its directory, with `suffix` behind the target's name.
    ///
    /// # Errors
    /// [`FtpError`] where the URL names no file, or a file with logins cannot be read.
    pub(crate) fn new(
        url: &Url,
        suffix: &str,
        config: &'a ClientConfig,
        sessions: &'a Sessions,
    ) -> Result<Self, FtpError> {
        // Its path is relative or absolute by the login.
        let mut access = ServerAccess::new(RemoteAddress::of(url)?, config, sessions)?;
        let temporary = temporary_path(&access.address.path, suffix);
        let target = std::mem::replace(&mut access.address.path, temporary);
        Ok(Self { access, target })
    }

    /// Returns the URL without secrets.
    pub(crate) fn at(&self) -> &str {
        self.access.at()
    }

    /// Logs in, or takes a session that was kept.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn open(&self, cancel: &Cancel) -> Result<StoreSession<'_>, FtpError> {
        let (session, state) = self.access.open_for_any(cancel)?;
        // A file that the server does not tell of is not there, or will be refused when it is stored.
        let held = state.ok().and_then(|state| state.size);
        Ok(StoreSession { store: self, session, held, has_computed: false })
    }
}

/// The longest name that file systems take, in bytes (NAME_MAX of Linux).
const MOST_OF_NAME: usize = 255;

/// Returns the path of the temporary file: the target's name, cut where that would be too long, and `suffix`.
fn temporary_path(target: &[u8], suffix: &str) -> Vec<u8> {
    let name = target.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut end = target.len().min(name + MOST_OF_NAME.saturating_sub(suffix.len()));
    // Not within a character of UTF-8.
    while end < target.len() && end > name && target[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    [&target[..end], suffix.as_bytes()].concat()
}

/// How the temporary file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreStart {
    /// Anew: what is there is dropped.
    Anew,
    /// Into what is there, at the offsets of the blocks.
    Into,
    /// From an offset on, in one stream.
    From(Bytes),
}

/// A session that stores one file.
pub(crate) struct StoreSession<'a> {
    store: &'a StoreTarget<'a>,
    session: Session,
    /// The length of the temporary file, where there was one when the session was opened.
    pub(crate) held: Option<Bytes>,
    /// Whether the server has computed a checksum.
    has_computed: bool,
}

impl<'a> StoreSession<'a> {
    /// Returns the server's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.session.control.peer
    }

    /// Returns the RTT of the control connection.
    pub(crate) fn rtt(&self) -> Rtt {
        self.session.control.rtt().unwrap_or_default()
    }

    /// Returns whether the server receives over several connections, at any offset.
    pub(crate) fn takes_blocks(&self) -> bool {
        let features = &self.session.features;
        features.extended_mode() && features.adjusted_store()
    }

    /// Goes on with the TLS handshake of a connection of [`Self::connect_stream`], while the server's consent is waited for.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn continue_handshake(&self, transport: &mut Transport) -> Result<(), FtpError> {
        transport.continue_handshake().map_err(|source| FtpError::of_receive(self.store.at(), source))
    }

    /// Completes the TLS handshake of a connection of [`Self::connect_stream`], once the server has begun to receive.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn shake_hands(&self, transport: &mut Transport, cancel: &Cancel) -> Result<(), FtpError> {
        let deadline = Deadline::new(cancel, self.store.access.config.timeouts.connect);
        shake_hands(transport, self.store.at(), &deadline)
    }

    /// Returns the algorithm to compare checksums by; `None` where the server computes none.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        PREFERRED.into_iter().find(|algorithm| self.session.features.checksum(*algorithm))
    }

    /// Selects MODE E, and returns where the server accepts data connections.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn listen_for_blocks(&mut self, cancel: &Cancel) -> Result<SocketAddr, FtpError> {
        let access = &self.store.access;
        if self.session.mode != Mode::Extended {
            for reply in self.session.control.ask(&[Command::ModeExtended], access.at(), cancel)? {
                if !reply.is_positive() {
                    return Err(FtpError::Refused { at: access.at().to_owned(), verb: "MODE", reply });
                }
            }
            self.session.mode = Mode::Extended;
        }
        // Connections that a fetch has left cannot be used the other way.
        self.session.data = None;
        passive::address(access, &mut self.session, cancel)
    }

    /// Opens the data connection of a store in one stream, before the command that uses it: some servers accept it first.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn connect_stream(&mut self, cancel: &Cancel) -> Result<Transport, FtpError> {
        let access = &self.store.access;
        self.session.use_mode_stream(access.at(), cancel)?;
        passive::connect(access, &mut self.session, cancel)
    }

    /// Sends the commands that begin to store; `size` is announced as what follows. Replies are read by [`Self::poll`].
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn begin(
        &mut self,
        start: StoreStart,
        size: Bytes,
        cancel: &Cancel,
    ) -> Result<&'static str, FtpError> {
        let (at, path) = (self.store.access.at(), &self.store.access.address.path);
        let sequential = self.store.access.sessions.is_sequential(&self.session.key);
        let control = &mut self.session.control;
        // What a server says to ALLO does not matter: some know no such command, or do not need it.
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
        if !sequential {
            control.send(&flight, at, cancel)?;
        }
        for command in &flight {
            if sequential {
                control.send(std::slice::from_ref(command), at, cancel)?;
            }
            if *command == store {
                break;
            }
            let reply = control.reply(command.verb(), control.limit, at, cancel)?;
            if matches!(command, Command::Rest(_)) && !reply.is_intermediate() {
                return Err(FtpError::Refused { at: at.to_owned(), verb: "REST", reply });
            }
        }
        Ok(store.verb())
    }

    /// Returns the next reply, where it has arrived; does not wait.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn poll(&mut self) -> Result<Option<Reply>, FtpError> {
        let at = self.store.access.at();
        if let Some(reply) = self.session.control.buffered_reply(at)? {
            return Ok(Some(reply));
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(self.session.control.transport().socket(), PollFlags::IN)];
        // An interrupted poll is repeated by the caller.
        let readable = poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0);
        if readable || self.session.control.has_decrypted() {
            return self.session.control.poll_reply(at);
        }
        Ok(None)
    }

    /// Waits for the next reply, a tick at most.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn poll_for_a_tick(&mut self) -> Result<Option<Reply>, FtpError> {
        self.session.control.poll_reply(self.store.access.at())
    }

    /// Makes the error of a reply that refuses `verb`.
    pub(crate) fn refused(&self, verb: &'static str, reply: Reply) -> FtpError {
        FtpError::Refused { at: self.store.at().to_owned(), verb, reply }
    }

    /// Makes the error of a reply that did not come.
    pub(crate) fn timeout(&self, step: &'static str, waited: Duration) -> FtpError {
        FtpError::Timeout { at: self.store.at().to_owned(), step, waited }
    }

    /// Makes the error of a reply that is out of turn.
    pub(crate) fn unrequested(&self, what: &str) -> FtpError {
        FtpError::Unrequested { at: self.store.at().to_owned(), what: what.to_owned() }
    }

    /// Returns whether a store in one stream can begin at an offset.
    pub(crate) fn resumes_streams(&self) -> bool {
        self.session.features.restarts_streams()
    }

    /// Asks for the checksums of ranges of the temporary file; `None` for each where the server turns out to compute none.
    ///
    /// # Errors
    /// [`FtpError`]; any other refusal is one.
    pub(crate) fn checksums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[ByteRange],
        cancel: &Cancel,
    ) -> Result<Vec<Option<Checksum>>, FtpError> {
        let access = &self.store.access;
        let name = longhaul_core::proto::gridftp::checksum_algorithm_name(algorithm).unwrap_or("MD5");
        let mut found = Vec::with_capacity(ranges.len());
        let together = if access.sessions.is_sequential(&self.session.key) { 1 } else { FLIGHT };
        for flight in ranges.chunks(together) {
            let path = &access.address.path;
            let commands: Vec<_> =
                flight.iter().map(|range| Command::Cksm(name, Some(*range), path)).collect();
            self.session.control.send(&commands, access.at(), cancel)?;
            for range in flight {
                let limit = self.session.control.limit + SLOWEST_CHECKSUM.time_for(range.len());
                let reply = self.session.control.reply("CKSM", limit, access.at(), cancel)?;
                found.push(self.checksum_of(reply, algorithm)?);
            }
        }
        Ok(found)
    }

    /// Asks for the checksum of the whole temporary file, which should have `size` bytes; `None` where the server computes none.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn whole_checksum(
        &mut self,
        algorithm: Algorithm,
        size: Bytes,
        cancel: &Cancel,
    ) -> Result<Option<Checksum>, FtpError> {
        let at = self.store.access.at();
        let name = longhaul_core::proto::gridftp::checksum_algorithm_name(algorithm).unwrap_or("MD5");
        self.session.control.send(
            &[Command::Cksm(name, None, &self.store.access.address.path)],
            at,
            cancel,
        )?;
        let limit = self.session.control.limit + SLOWEST_CHECKSUM.time_for(size);
        let reply = self.session.control.reply("CKSM", limit, at, cancel)?;
        self.checksum_of(reply, algorithm)
    }

    /// Reads the reply to CKSM; `None` where it says that the server has no such command, which may be said only at first.
    fn checksum_of(&mut self, reply: Reply, algorithm: Algorithm) -> Result<Option<Checksum>, FtpError> {
        let is_unknown = matches!(reply.code, 500 | 502 | 504) && !self.has_computed;
        match parse_checksum(&reply, algorithm) {
            Some(checksum) => {
                self.has_computed = true;
                Ok(Some(checksum))
            }
            None if is_unknown => Ok(None),
            None => Err(self.refused("CKSM", reply)),
        }
    }

    /// Asks for the length of the temporary file; `None` where the server does not say.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn size(&mut self, cancel: &Cancel) -> Result<Option<Bytes>, FtpError> {
        let access = &self.store.access;
        let replies =
            self.session.control.ask(&[Command::Size(&access.address.path)], access.at(), cancel)?;
        Ok(replies.first().and_then(parse_size))
    }

    /// Gives the file its time, where the server sets times, and its name.
    ///
    /// # Errors
    /// [`FtpError`]; the temporary file is then still there.
    pub(crate) fn rename(&mut self, modified: Option<SystemTime>, cancel: &Cancel) -> Result<(), FtpError> {
        let access = &self.store.access;
        let (at, path, target) = (access.at(), &access.address.path, &self.store.target);
        let sets_time = self.session.features.lists("MFMT");
        // A time before 1970 cannot be expressed.
        let time = modified.filter(|time| sets_time && *time >= SystemTime::UNIX_EPOCH);
        let mut commands: Vec<_> = time.map(|time| Command::Mfmt(time, path)).into_iter().collect();
        commands.extend([Command::Rnfr(path), Command::Rnto(target)]);
        let replies = if access.sessions.is_sequential(&self.session.key) {
            let mut replies = Vec::new();
            for command in &commands {
                replies.extend(self.session.control.ask(std::slice::from_ref(command), at, cancel)?);
            }
            replies
        } else {
            self.session.control.ask(&commands, at, cancel)?
        };
        for (command, reply) in commands.iter().zip(&replies) {
            let done = match command {
                Command::Rnfr(_) => reply.is_intermediate(),
                // A file system may keep no times.
                Command::Mfmt(..) => true,
                _ => reply.is_positive(),
            };
            if !done {
                return Err(self.refused(command.verb(), reply.clone()));
            }
        }
        Ok(())
    }

    /// Removes the temporary file; a server that does not is not asked again.
    pub(crate) fn discard(&mut self, cancel: &Cancel) {
        let access = &self.store.access;
        let asked = self.session.control.ask(&[Command::Dele(&access.address.path)], access.at(), cancel);
        if let Err(error) = asked {
            tracing::debug!("a temporary file was not removed: {error}");
        }
    }

    /// Opens a data connection to an address of [`Self::listen_for_blocks`].
    pub(crate) fn dialler(&self, address: SocketAddr) -> BlockDialler<'a> {
        let access = &self.store.access;
        let (settings, limit) = (access.settings(), access.config.timeouts.connect);
        let protection = self.session.protection.clone();
        BlockDialler { settings, limit, address, protection, at: access.at() }
    }

    /// Keeps the session for the next file.
    pub(crate) fn keep(self) {
        self.store.access.sessions.keep(self.session);
    }

    /// Waits for the end of a store in one stream; `wait` is how long the server may take.
    ///
    /// # Errors
    /// [`FtpError::Refused`] where the server broke it off.
    pub(crate) fn finish(
        &mut self,
        verb: &'static str,
        wait: Duration,
        cancel: &Cancel,
    ) -> Result<(), FtpError> {
        let deadline = Deadline::new(cancel, wait);
        loop {
            match self.poll_for_a_tick()? {
                Some(reply) if reply.is_preliminary() => {}
                Some(reply) if reply.is_positive() => return Ok(()),
                Some(reply) => return Err(self.refused(verb, reply)),
                None => check(&deadline, self.store.at(), "storing the file")?,
            }
        }
    }
}

/// Opens data connections of MODE E, from any thread.
pub(crate) struct BlockDialler<'a> {
    settings: SocketSettings<'a>,
    limit: Duration,
    address: SocketAddr,
    protection: DataProtection,
    /// The URL, for errors.
    at: &'a str,
}

impl BlockDialler<'_> {
    /// Opens a data connection, encrypted where the session's are; its handshake is complete.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn dial(&self, cancel: &Cancel) -> Result<Transport, FtpError> {
        let deadline = Deadline::new(cancel, self.limit);
        let (socket, _) = dial(&self.address.to_string(), &[self.address], self.settings, &deadline)?;
        let transport = self.protection.over_connected(socket);
        let mut transport = transport.map_err(|error| FtpError::of_tls(self.at, &error))?;
        shake_hands(&mut transport, self.at, &deadline)?;
        Ok(transport)
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Completes the TLS handshake, so that nothing is sent to a peer that is not verified.
fn shake_hands(transport: &mut Transport, at: &str, deadline: &Deadline<'_>) -> Result<(), FtpError> {
    while let Transport::Tls(tls) = &*transport
        && tls.session.is_handshaking()
    {
        match transport.receive(&mut [0]) {
            Ok(Received::Idle) => {}
            Ok(Received::Data(_)) => {
                return Err(FtpError::Unrequested { at: at.to_owned(), what: "data".to_owned() });
            }
            Ok(Received::End { .. }) => {
                return Err(FtpError::ClosedEarly { at: at.to_owned(), got: Bytes::ZERO });
            }
            Err(source) => return Err(FtpError::of_receive(at, source)),
        }
        check(deadline, at, "the TLS handshake of a data connection")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temporary_name_stands_beside_the_target_and_is_never_too_long() {
        assert_eq!(temporary_path(b"/a/b", ".x"), b"/a/b.x");
        assert_eq!(temporary_path(b"b", ".x"), b"b.x");
        let long = [b"/dir/".as_slice(), "\u{e9}".repeat(127).as_bytes()].concat();
        let path = temporary_path(&long, ".0123456789");
        assert_eq!(&path[..5], b"/dir/");
        assert!(path.len() - 5 <= MOST_OF_NAME && path.ends_with(b".0123456789"));
        assert!(String::from_utf8(path).is_ok());
    }
}
