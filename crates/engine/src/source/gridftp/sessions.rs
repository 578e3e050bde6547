//! Logged-in control connections that an engine keeps for further files.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::gridftp::{Command, Features, Reply, checksum_algorithm_name};
use longhaul_core::proto::netrc::Login;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};
use parking_lot::Mutex;
use url::Host;

use super::control::ControlConnection;
use super::data_protection::DataProtection;
use super::error::FtpError;
use super::extended_mode::AcceptedConnections;
use super::remote_address::Scheme;
use super::remote_state::{RemoteState, StateCommands, is_unknown_command};
use crate::cancel::Cancel;
use crate::connect::{Deadline, ResolvedHosts};
use crate::source::http::TlsConfig;

/// The lifetime of a kept session: servers close idle ones after 5 minutes or more (vsftpd),
/// proftpd after 10.
const KEPT_FOR: Duration = Duration::from_secs(120);
/// The maximum number of kept sessions.
const MAX_KEPT_SESSIONS: usize = 64;
/// The assumed minimum rate at which a server reads and hashes; a single disk is faster, a busy one
/// may not be.
const SLOWEST_CHECKSUM: Rate = Rate::bytes_per_sec(10_000_000);

/// The properties shared by interchangeable sessions, which include the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionKey {
    pub(super) scheme: Scheme,
    pub(super) host: Host<String>,
    /// The zone of the host's address.
    pub(super) zone: Option<u32>,
    pub(super) port: u16,
    pub(super) login: Login,
    /// Whether data must be encrypted.
    pub(super) encrypt: bool,
    /// The trusted certificates, and the client's certificate.
    pub(super) tls: TlsConfig,
    /// The options of the session's sockets.
    pub(super) recv_buffer: Option<Bytes>,
    pub(super) congestion: Option<String>,
}

/// A logged-in control connection, and the parameters negotiated over it.
pub(super) struct Session {
    pub(super) control: ControlConnection,
    pub(super) key: SessionKey,
    pub(super) features: Features,
    /// The commands for requesting the state of a file.
    pub(super) state_commands: StateCommands,
    /// Whether the server supports starting at an offset; `None` if not yet tried.
    restarts: Option<bool>,
    /// Whether the server is in MODE E in place of MODE S, the default (RFC 959, section 3.4).
    pub(super) is_extended: bool,
    /// Whether data connections are encrypted.
    pub(super) protection: DataProtection,
    /// The data connections of MODE E, which the server reuses.
    pub(super) data: Option<AcceptedConnections>,
}

impl Session {
    pub(super) fn new(
        control: ControlConnection,
        key: SessionKey,
        features: Features,
        state_commands: StateCommands,
        protection: DataProtection,
    ) -> Self {
        Self {
            control,
            key,
            features,
            state_commands,
            restarts: None,
            is_extended: false,
            protection,
            data: None,
        }
    }

    /// Requests the state of a file.
    pub(super) fn query_state(&mut self, path: &[u8], cancel: &Cancel) -> Result<RemoteState, FtpError> {
        let replies = self.control.ask_all(&self.state_commands.commands(path), cancel)?;
        self.state_commands.read(&replies, self.control.at())
    }

    /// Returns whether a transfer in MODE S can start at an offset. Some servers list REST and
    /// refuse it, others support it without listing it. So it is tried once, and reset to 0 for the
    /// next transfer.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(super) fn restarts(&mut self, cancel: &Cancel) -> Result<bool, FtpError> {
        if let Some(restarts) = self.restarts {
            return Ok(restarts);
        }
        let replies = self.control.ask_all(&[Command::Rest(1), Command::Rest(0)], cancel)?;
        let restarts = !replies.iter().any(is_unknown_command);
        self.restarts = Some(restarts);
        Ok(restarts)
    }

    /// Returns to MODE S.
    pub(super) fn use_mode_stream(&mut self, cancel: &Cancel) -> Result<(), FtpError> {
        if !self.is_extended {
            return Ok(());
        }
        self.data = None;
        self.control.demand(&Command::ModeStream, cancel)?;
        self.is_extended = false;
        Ok(())
    }

    /// Requests the checksums of ranges of a file, or of the whole file of expected size `size`;
    /// returns the replies.
    ///
    /// # Errors
    /// [`FtpError`], except for negative replies, which are returned.
    pub(super) fn checksums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[Option<ByteRange>],
        (path, size): (&[u8], Bytes),
        cancel: &Cancel,
    ) -> Result<Vec<Reply>, FtpError> {
        let name = checksum_algorithm_name(algorithm).unwrap_or("MD5");
        let mut replies = Vec::with_capacity(ranges.len());
        for flight in ranges.chunks(self.control.flight()) {
            let commands: Vec<_> = flight.iter().map(|range| Command::Cksm(name, *range, path)).collect();
            self.control.send(&commands, cancel)?;
            for range in flight {
                let length = range.map_or(size, |range| range.len());
                let limit = self.control.limit + SLOWEST_CHECKSUM.time_for(length);
                replies.push(self.control.reply("CKSM", &Deadline::new(cancel, limit))?);
            }
        }
        Ok(replies)
    }
}

/// Items kept for a limited time, oldest first.
struct ExpiringList<T>(Vec<(T, Instant)>);

impl<T> Default for ExpiringList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ExpiringList<T> {
    fn drop_expired(&mut self, now: Instant) {
        self.0.retain(|(_, since)| now.saturating_duration_since(*since) < KEPT_FOR);
    }

    /// Takes the newest item for which `wanted` is true.
    fn take(&mut self, wanted: impl Fn(&T) -> bool, now: Instant) -> Option<T> {
        self.drop_expired(now);
        let at = self.0.iter().rposition(|(one, _)| wanted(one))?;
        Some(self.0.remove(at).0)
    }

    fn keep(&mut self, one: T, now: Instant) {
        self.drop_expired(now);
        if self.0.len() >= MAX_KEPT_SESSIONS {
            self.0.remove(0);
        }
        self.0.push((one, now));
    }
}

/// The deviations of a server that earlier sessions have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ServerQuirks {
    /// The server loses commands sent in one flight.
    pub(super) is_sequential: bool,
    /// PASV leads to a data connection, and EPSV does not.
    pub(super) lacks_epsv: bool,
    /// LIST lists directories, and MLSD does not.
    pub(super) lacks_mlsd: bool,
}

/// Logged-in sessions with FTP servers, kept between transfers.
#[derive(Default)]
pub struct FtpSessions {
    kept: Mutex<ExpiringList<Session>>,
    pub(super) hosts: ResolvedHosts,
    quirks: Mutex<HashMap<(Host<String>, u16), ServerQuirks>>,
}

impl fmt::Debug for FtpSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FtpSessions")
    }
}

impl FtpSessions {
    /// Takes the most recently used kept session, for a file at the URL `at`.
    pub(super) fn take(&self, key: &SessionKey, at: &str) -> Option<Session> {
        let mut session = self.kept.lock().take(|session| session.key == *key, Instant::now())?;
        session.control.set_url(at);
        session.control.is_quiet().then_some(session)
    }

    /// Keeps a session without outstanding commands.
    pub(super) fn keep(&self, mut session: Session) {
        if !session.control.is_quiet() {
            return;
        }
        self.kept.lock().keep(session, Instant::now());
    }

    /// Returns the known deviations of a server.
    pub(super) fn quirks(&self, key: &SessionKey) -> ServerQuirks {
        self.quirks.lock().get(&(key.host.clone(), key.port)).copied().unwrap_or_default()
    }

    /// Records a deviation of a server.
    pub(super) fn learn(&self, key: &SessionKey, change: impl FnOnce(&mut ServerQuirks)) {
        change(self.quirks.lock().entry((key.host.clone(), key.port)).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_sessions_are_dropped_when_another_is_kept() {
        let (mut kept, begin) = (ExpiringList::default(), Instant::now());
        (0..MAX_KEPT_SESSIONS).for_each(|one| kept.keep(one, begin));
        assert_eq!(kept.0.len(), MAX_KEPT_SESSIONS);
        kept.keep(MAX_KEPT_SESSIONS, begin + KEPT_FOR / 2);
        assert_eq!((kept.0.len(), kept.0[0].0), (MAX_KEPT_SESSIONS, 1), "the oldest goes");
        kept.keep(1000, begin + KEPT_FOR);
        let left: Vec<_> = kept.0.iter().map(|(one, _)| *one).collect();
        assert_eq!(left, [MAX_KEPT_SESSIONS, 1000], "the expired ones go");
        assert_eq!(kept.take(|_| true, begin + KEPT_FOR), Some(1000));
        assert_eq!(kept.take(|_| true, begin + 2 * KEPT_FOR), None);
    }
}
