//! Logged-in control connections that an engine keeps for further files.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_core::proto::gridftp::{Command, Features};
use longhaul_core::proto::netrc::Login;
use longhaul_core::units::Bytes;
use parking_lot::Mutex;
use url::Host;

use super::control::ControlConnection;
use super::data_path::DataPath;
use super::data_protection::DataProtection;
use super::error::FtpError;
use super::remote_address::Scheme;
use super::remote_state::{RemoteState, StateCommands, is_unknown_command};
use crate::cancel::Cancel;
use crate::connect::ResolvedHosts;
use crate::source::http::TlsConfig;

/// The lifetime of a kept session: servers close idle ones after 5 minutes or more (vsftpd), proftpd after 10.
const KEPT_FOR: Duration = Duration::from_secs(120);
/// The maximum number of kept sessions.
const MAX_KEPT: usize = 64;

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

/// The transfer mode of the server (RFC 959, section 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// MODE S, the default.
    Stream,
    /// MODE E.
    Extended,
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
    pub(super) mode: Mode,
    /// Whether data connections are encrypted.
    pub(super) protection: DataProtection,
    /// The data connections of MODE E, which the server reuses.
    pub(super) data: Option<DataPath>,
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
            mode: Mode::Stream,
            protection,
            data: None,
        }
    }

    /// Requests the state of a file.
    pub(super) fn query_state(
        &mut self,
        path: &[u8],
        at: &str,
        cancel: &Cancel,
    ) -> Result<RemoteState, FtpError> {
        let replies = self.control.ask(&self.state_commands.commands(path), at, cancel)?;
        self.state_commands.read(&replies, at)
    }

    /// Returns whether a transfer in MODE S can start at an offset. Some servers list REST and refuse it, others
    /// support it without listing it. So it is tried once, and reset to 0 for the next transfer. A `sequential` server
    /// receives one command at a time.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(super) fn restarts(&mut self, sequential: bool, at: &str, cancel: &Cancel) -> Result<bool, FtpError> {
        if let Some(restarts) = self.restarts {
            return Ok(restarts);
        }
        let commands = [Command::Rest(1), Command::Rest(0)];
        let mut restarts = true;
        for flight in commands.chunks(if sequential { 1 } else { commands.len() }) {
            let replies = self.control.ask(flight, at, cancel)?;
            restarts &= !replies.iter().any(is_unknown_command);
        }
        self.restarts = Some(restarts);
        Ok(restarts)
    }

    /// Returns to MODE S.
    pub(super) fn use_mode_stream(&mut self, at: &str, cancel: &Cancel) -> Result<(), FtpError> {
        if self.mode == Mode::Stream {
            return Ok(());
        }
        self.data = None;
        for reply in self.control.ask(&[Command::ModeStream], at, cancel)? {
            FtpError::require_positive(reply, at, "MODE")?;
        }
        self.mode = Mode::Stream;
        Ok(())
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
        if self.0.len() >= MAX_KEPT {
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

/// The sessions of an engine.
#[derive(Default)]
pub(crate) struct Sessions {
    kept: Mutex<ExpiringList<Session>>,
    pub(super) hosts: ResolvedHosts,
    quirks: Mutex<HashMap<(Host<String>, u16), ServerQuirks>>,
}

impl Sessions {
    /// Takes the most recently used kept session.
    pub(super) fn take(&self, key: &SessionKey) -> Option<Session> {
        let mut session = self.kept.lock().take(|session| session.key == *key, Instant::now())?;
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
        (0..MAX_KEPT).for_each(|one| kept.keep(one, begin));
        assert_eq!(kept.0.len(), MAX_KEPT);
        kept.keep(MAX_KEPT, begin + KEPT_FOR / 2);
        assert_eq!((kept.0.len(), kept.0[0].0), (MAX_KEPT, 1), "the oldest goes");
        kept.keep(1000, begin + KEPT_FOR);
        let left: Vec<_> = kept.0.iter().map(|(one, _)| *one).collect();
        assert_eq!(left, [MAX_KEPT, 1000], "the expired ones go");
        assert_eq!(kept.take(|_| true, begin + KEPT_FOR), Some(1000));
        assert_eq!(kept.take(|_| true, begin + 2 * KEPT_FOR), None);
    }
}
