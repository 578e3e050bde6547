//! From an address to a logged-in control connection and the state of the file.

use std::time::{Duration, Instant};

use longhaul_core::failure::Cause;
use longhaul_core::proto::gridftp::{Command, Features, Reply, parse_mlst};
use longhaul_core::proto::netrc::Login;

use super::control::ControlConnection;
use super::data_protection::DataProtection;
use super::error::FtpError;
use super::gsi::DataCredential;
use super::remote_address::{RemoteAddress, Scheme};
use super::remote_state::{RemoteState, StateCommands};
use super::security;
use super::sessions::{FtpSessions, Session, SessionKey};
use crate::cancel::Cancel;
use crate::connect::{Deadline, SocketSettings, Transport, dial};
use crate::source::http::{ClientConfig, Credentials, is_loopback};

/// The anonymous login (RFC 1635).
const ANONYMOUS: (&str, &str) = ("anonymous", "anonymous@");
/// With GSI the certificate identifies the user (GFD.20, section 4); the password is ignored.
const MAPPED: (&str, &str) = (":globus-mapping:", "dummy");
/// A server that does not reply to the next command of a flight within this time has lost it.
const FLIGHT_PATIENCE: Duration = Duration::from_secs(10);

/// Why a login over ftp:// is refused.
const EXPOSED: &str = "it sends the login unencrypted, and any host on the path can read it; use ftps://, or permit it with \
                       --allow-cleartext";

/// Returns whether a login is other than anonymous.
fn is_secret(login: &Login) -> bool {
    !matches!(login.user.as_str(), "" | "anonymous" | "ftp")
}

/// A session, and the state of the file or the error of requesting it.
type SessionAndState = (Session, Result<RemoteState, FtpError>);

/// The address and login for the server of a file.
pub(super) struct ServerAccess<'a> {
    pub(super) address: RemoteAddress,
    pub(super) config: &'a ClientConfig,
    pub(super) sessions: &'a FtpSessions,
    key: SessionKey,
}

impl<'a> ServerAccess<'a> {
    /// Chooses the login: that of the URL, the user, .netrc, or anonymous; with GSI that of the URL
    /// or the certificate.
    ///
    /// # Errors
    /// Those of an option that the scheme does not support, and of an unreadable .netrc.
    pub(super) fn new(
        mut address: RemoteAddress,
        config: &'a ClientConfig,
        sessions: &'a FtpSessions,
    ) -> Result<Self, FtpError> {
        if config.encrypt && address.scheme == Scheme::Ftp {
            let why = "it has no encryption; use ftps:// or gsiftp://, or leave out --encrypt";
            return Err(FtpError::url(&address.shown, why));
        }
        if address.scheme != Scheme::Ftps && !config.tls.pins.is_empty() {
            let why = "its server proves no key of --pin; use ftps://, or leave out --pin";
            return Err(FtpError::url(&address.shown, why));
        }
        if config.proxies.is_given() {
            let why = "FTP goes through no proxy; leave out --proxy, or use https://";
            return Err(FtpError::url(&address.shown, why));
        }
        let given = match &config.logins.credentials {
            Some(Credentials::Basic(login)) => Some(login.clone()),
            _ => None,
        };
        let mut login = address.login.clone();
        if address.scheme != Scheme::GsiFtp {
            login = login.or(given);
            if let (None, Some(netrc)) = (&login, &config.logins.netrc.file)
                && let Some(Credentials::Basic(found)) =
                    netrc.login(&address.host.to_string(), config.logins.netrc.default_applies)?
            {
                login = Some(found);
            }
        }
        let in_clear = address.scheme == Scheme::Ftp && !is_loopback(&address.host);
        if in_clear && !config.logins.allow_cleartext && login.as_ref().is_some_and(is_secret) {
            return Err(FtpError::url(&address.shown, EXPOSED));
        }
        if login.is_none() && address.scheme != Scheme::GsiFtp {
            address.make_absolute();
        }
        let usual = if address.scheme == Scheme::GsiFtp { MAPPED } else { ANONYMOUS };
        let usual = || Login { user: usual.0.to_owned(), password: usual.1.to_owned() };
        let key = SessionKey {
            scheme: address.scheme,
            host: address.host.clone(),
            zone: config.addresses.zone(&address.host),
            port: address.port,
            login: login.unwrap_or_else(usual),
            encrypt: config.encrypt,
            tls: config.tls.clone(),
            recv_buffer: config.recv_buffer,
            congestion: config.congestion.clone(),
        };
        Ok(Self { address, config, sessions, key })
    }

    /// Returns the URL without secrets.
    pub(super) fn at(&self) -> &str {
        &self.address.shown
    }

    /// Returns the timeout for the TLS handshake of a data connection: a server may recall the file
    /// from tape before it answers.
    pub(super) fn handshake_limit(&self) -> Duration {
        self.config.timeouts.connect.max(self.config.timeouts.head)
    }

    /// Returns a kept or new session, and the state of the file.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(super) fn open(&self, cancel: &Cancel) -> Result<(Session, RemoteState), FtpError> {
        let (session, state) = self.open_for_any(cancel)?;
        Ok((session, state?))
    }

    /// Returns a session like [`Self::open`], and the state of the file or the error of requesting
    /// it: the file may not exist.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(super) fn open_for_any(&self, cancel: &Cancel) -> Result<SessionAndState, FtpError> {
        while let Some(mut session) = self.sessions.take(&self.key, self.at()) {
            match session.query_state(&self.address.path, cancel) {
                Ok(state) => return Ok((session, Ok(state))),
                // A refusal concerns the file; any other error means that the kept session is
                // broken, and a further one is tried.
                Err(error @ FtpError::Refused { .. }) => return Ok((session, Err(error))),
                Err(error @ FtpError::Command { .. }) => return Err(error),
                Err(error) if error.is_caused_by(Cause::Interrupted) => return Err(error),
                Err(error) => tracing::debug!("a kept session is of no more use: {error}"),
            }
        }
        self.log_in(cancel)
    }

    /// Returns a session for requests about a directory: a kept one, which may be broken, or a new
    /// one.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(super) fn open_for_directory(&self, cancel: &Cancel) -> Result<Session, FtpError> {
        match self.sessions.take(&self.key, self.at()) {
            Some(session) => Ok(session),
            None => Ok(self.log_in(cancel)?.0),
        }
    }

    fn log_in(&self, cancel: &Cancel) -> Result<SessionAndState, FtpError> {
        if !self.sessions.quirks(&self.key).is_sequential {
            match self.log_in_by_flight(cancel) {
                Err(FtpError::Timeout { step: "a flight of commands", .. }) => {
                    self.sessions.learn(&self.key, |quirks| quirks.is_sequential = true);
                }
                done => return done,
            }
        }
        self.log_in_by_steps(cancel)
    }

    /// Connects, reads the greeting, and protects the connection: all within the connect timeout.
    fn connect(&self, cancel: &Cancel) -> Result<(ControlConnection, DataProtection), FtpError> {
        let RemoteAddress { host, port, scheme, .. } = &self.address;
        if *scheme == Scheme::GsiFtp {
            security::check_credentials()?;
        }
        let deadline = Deadline::new(cancel, self.config.timeouts.connect);
        // The user's buffer size applies to data connections.
        let settings = SocketSettings { recv_buffer: None, ..self.config.sockets() };
        let hosts = &self.sessions.hosts;
        let addresses = hosts.resolve(host, *port, &self.config.addresses, &deadline, settings.tick)?;
        let dialled = dial(&format!("{host}:{port}"), &addresses, settings, &deadline);
        if dialled.is_err() {
            // The host may have other addresses by now.
            hosts.forget(host, *port);
        }
        let (socket, peer) = dialled?;
        // --resolve may lead the name of this host elsewhere.
        let in_clear = *scheme == Scheme::Ftp && !peer.ip().to_canonical().is_loopback();
        if in_clear && !self.config.logins.allow_cleartext && is_secret(&self.key.login) {
            return Err(FtpError::url(&format!("{} ({peer})", self.at()), EXPOSED));
        }
        let limit = self.config.timeouts.head;
        let is_sequential = self.sessions.quirks(&self.key).is_sequential;
        let control =
            ControlConnection::new(Transport::Plain(socket), peer, limit, self.at(), is_sequential)?;
        match self.greet(control, &deadline) {
            Ok(greeted) => {
                hosts.has_answered(peer);
                Ok(greeted)
            }
            Err(error) => {
                if error.is_silence() {
                    hosts.was_silent(peer, Instant::now());
                }
                Err(error.while_connecting(peer))
            }
        }
    }

    /// Reads the greeting, and protects the control connection as the scheme requires; returns the
    /// protection of data connections.
    fn greet(
        &self,
        mut control: ControlConnection,
        deadline: &Deadline<'_>,
    ) -> Result<(ControlConnection, DataProtection), FtpError> {
        let greeting = control.reply("its greeting", deadline)?;
        if !greeting.is_positive() {
            return Err(FtpError::Busy { at: self.at().to_owned(), reply: greeting });
        }
        match self.address.scheme {
            Scheme::Ftp => Ok((control, DataProtection::Clear)),
            Scheme::Ftps => security::begin_tls(self, control, deadline),
            Scheme::GsiFtp => {
                let mut exchange = |command: &Command<'_>| control.ask_by(command, deadline);
                let gsi = security::authenticate(&mut exchange, &self.address.host)?;
                control.protect(gsi);
                let encrypted = || DataCredential::generate(&self.address.host.to_string());
                let protection = match self.key.encrypt {
                    true => DataProtection::Gsi(encrypted()?),
                    false => DataProtection::Clear,
                };
                Ok((control, protection))
            }
        }
    }

    /// Returns the commands from the login to the state of the file, followed by those that protect
    /// data connections.
    fn commands<'c>(&'c self, protection: &'c DataProtection) -> Vec<Command<'c>> {
        let (path, login) = (&self.address.path, &self.key.login);
        let mut commands = vec![
            Command::User(&login.user),
            Command::Pass(&login.password),
            Command::Feat,
            Command::TypeImage,
            Command::Mlst(path),
            Command::Size(path),
            Command::Mdtm(path),
        ];
        commands.extend(security::data_commands(self.address.scheme, protection));
        commands
    }

    /// Sends all commands at once: a login takes one round trip after the greeting. A password over
    /// an unencrypted connection is sent only after the server has requested it.
    fn log_in_by_flight(&self, cancel: &Cancel) -> Result<SessionAndState, FtpError> {
        let (mut control, protection) = self.connect(cancel)?;
        let commands = self.commands(&protection);
        let mut replies = Vec::new();
        if self.address.scheme == Scheme::Ftp && is_secret(&self.key.login) {
            replies.push(control.ask(&commands[0], cancel)?);
            self.check_login(&replies)?;
            if let [user] = &replies[..]
                && user.is_positive()
            {
                // Logged in without a password.
                replies.push(user.clone());
            }
        }
        control.send(&commands[replies.len()..], cancel)?;
        replies.push(control.answer("the login", &Deadline::new(cancel, control.limit))?);
        while replies.len() < commands.len() {
            let patience = FLIGHT_PATIENCE.min(control.limit);
            let next = control.answer("a flight of commands", &Deadline::new(cancel, patience));
            // The server may close the connection after a refused login.
            let next = next.or_else(|error| self.check_login(&replies).and(Err(error)))?;
            replies.push(next);
        }
        self.logged_in(control, protection, &replies)
    }

    /// Logs in with one command at a time.
    fn log_in_by_steps(&self, cancel: &Cancel) -> Result<SessionAndState, FtpError> {
        let (mut control, protection) = self.connect(cancel)?;
        let mut replies: Vec<Reply> = Vec::new();
        for (index, command) in self.commands(&protection).iter().enumerate() {
            // The server has logged in the user without a password.
            let skipped = index == 1 && replies.first().is_some_and(Reply::is_positive);
            replies.push(if skipped { replies[0].clone() } else { control.ask(command, cancel)? });
            self.check_login(&replies)?;
        }
        self.logged_in(control, protection, &replies)
    }

    /// Fails if the replies so far refuse the login.
    fn check_login(&self, replies: &[Reply]) -> Result<(), FtpError> {
        let refused = |reply: &Reply| FtpError::Login {
            at: self.at().to_owned(),
            user: self.key.login.user.clone(),
            reply: reply.clone(),
        };
        let busy = |reply: &Reply| FtpError::Busy { at: self.at().to_owned(), reply: reply.clone() };
        match replies {
            [user, ..] if user.is_transient() => Err(busy(user)),
            [user, ..] if user.is_permanent() => Err(refused(user)),
            // After a login without a password, the server refuses PASS.
            [user, ..] if user.is_positive() => Ok(()),
            [_, pass, ..] if pass.is_transient() => Err(busy(pass)),
            [_, pass, ..] if !pass.is_positive() => Err(refused(pass)),
            _ => Ok(()),
        }
    }

    fn logged_in(
        &self,
        control: ControlConnection,
        protection: DataProtection,
        replies: &[Reply],
    ) -> Result<SessionAndState, FtpError> {
        self.check_login(replies)?;
        let [_, _, features, image, mlst, size, time, protected @ ..] = replies else {
            return Err(control.unrequested("another number of replies"));
        };
        control.require_positive(image.clone(), "TYPE")?;
        security::check_data(self, &protection, protected)?;
        let features = Features::parse(features);
        let (state, state_commands) = match RemoteState::first(mlst, size, time, self.at()) {
            _ if self.address.is_directory => {
                let by_mlst = parse_mlst(mlst).is_ok();
                (Ok(RemoteState::default()), StateCommands::preferring(by_mlst))
            }
            Ok((state, state_commands)) => (Ok(state), state_commands),
            Err(error) => (Err(error), StateCommands::preferring(features.lists("MLST"))),
        };
        Ok((Session::new(control, self.key.clone(), features, state_commands, protection), state))
    }
}
