//! Logged-in control connections that are kept for the next file of an engine.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use longhaul_core::proto::gridftp::{Command, Features};
use longhaul_core::proto::netrc::Login;
use longhaul_core::units::Bytes;
use url::Host;

use super::control::ControlConnection;
use super::data_path::DataPath;
use super::data_protection::DataProtection;
use super::error::FtpError;
use super::remote_address::Scheme;
use super::remote_state::{LookCommands, RemoteState};
use crate::cancel::Cancel;
use crate::connect::ResolvedHosts;
use crate::threads::lock;

/// For how long a session is kept: servers close idle ones after 5 minutes or more (vsftpd), proftpd after 10.
const KEPT_FOR: Duration = Duration::from_secs(120);
/// The most sessions that are kept.
const MOST: usize = 64;

/// What sessions of one kind share; a login's sessions are for that login only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionKey {
    pub(super) scheme: Scheme,
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) login: Login,
    /// Whether data is to be encrypted.
    pub(super) encrypt: bool,
    /// The root certificates besides the system's.
    pub(super) ca_file: Option<PathBuf>,
    /// Options of its sockets.
    pub(super) recv_buffer: Option<Bytes>,
    pub(super) congestion: Option<String>,
}

/// How the server was told to send (RFC 959, section 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// MODE S, the default.
    Stream,
    /// MODE E.
    Extended,
}

/// A logged-in control connection, and what was agreed on over it.
pub(super) struct Session {
    pub(super) control: ControlConnection,
    pub(super) key: SessionKey,
    pub(super) features: Features,
    pub(super) look: LookCommands,
    pub(super) mode: Mode,
    /// Whether data connections are encrypted.
    pub(super) protection: DataProtection,
    /// The data connections of MODE E, which the server uses again.
    pub(super) data: Option<DataPath>,
}

impl Session {
    /// Asks for the state of a file.
    pub(super) fn look(&mut self, path: &[u8], at: &str, cancel: &Cancel) -> Result<RemoteState, FtpError> {
        let replies = self.control.ask(&self.look.commands(path), at, cancel)?;
        self.look.read(&replies, at)
    }

    /// Returns to MODE S.
    pub(super) fn use_mode_stream(&mut self, at: &str, cancel: &Cancel) -> Result<(), FtpError> {
        if self.mode == Mode::Stream {
            return Ok(());
        }
        self.data = None;
        for reply in self.control.ask(&[Command::ModeStream], at, cancel)? {
            if !reply.is_positive() {
                return Err(FtpError::Refused { at: at.to_owned(), verb: "MODE", reply });
            }
        }
        self.mode = Mode::Stream;
        Ok(())
    }
}

/// The sessions of an engine.
#[derive(Default)]
pub(crate) struct Sessions {
    kept: Mutex<Vec<(Session, Instant)>>,
    pub(super) hosts: ResolvedHosts,
    /// Servers that lose commands of a flight.
    sequential: Mutex<HashSet<(Host<String>, u16)>>,
}

impl Sessions {
    /// Takes a session that was kept, the one used last.
    pub(super) fn take(&self, key: &SessionKey) -> Option<Session> {
        let mut kept = lock(&self.kept);
        kept.retain(|(_, since)| since.elapsed() < KEPT_FOR);
        let at = kept.iter().rposition(|(session, _)| session.key == *key)?;
        let (mut session, _) = kept.remove(at);
        session.control.is_quiet().then_some(session)
    }

    /// Keeps a session of which no command is outstanding.
    pub(super) fn keep(&self, mut session: Session) {
        if !session.control.is_quiet() {
            return;
        }
        let mut kept = lock(&self.kept);
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push((session, Instant::now()));
    }

    /// Returns whether a server is to be asked one command at a time.
    pub(super) fn is_sequential(&self, key: &SessionKey) -> bool {
        lock(&self.sequential).contains(&(key.host.clone(), key.port))
    }

    /// Notes that a server loses commands of a flight.
    pub(super) fn set_sequential(&self, key: &SessionKey) {
        lock(&self.sequential).insert((key.host.clone(), key.port));
    }
}
