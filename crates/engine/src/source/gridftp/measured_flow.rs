//! What a probe measures of a server: its features, and a file in MODE S, whose bytes are discarded
//! until the receiver stops.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_core::proto::gridftp::{Command, Features, Reply};
use longhaul_core::units::Bytes;
use url::Url;

use super::control::ControlConnection;
use super::error::FtpError;
use super::login::ServerAccess;
use super::passive_connection;
use super::remote_address::RemoteAddress;
use super::sessions::{FtpSessions, Session};
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, SocketSettings, Transport, dial};
use crate::source::http::ClientConfig;

/// The interval at which a wait checks its deadline.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Reads the greeting and the features of a server, within `limit` and without a login.
///
/// # Errors
/// [`FtpError`].
pub(crate) fn features(address: SocketAddr, limit: Duration) -> Result<(Reply, Features), FtpError> {
    let (at, cancel) = (address.to_string(), Cancel::new());
    let deadline = Deadline::new(&cancel, limit);
    let settings = SocketSettings { recv_buffer: None, congestion: None, tick: DEADLINE_CHECK_INTERVAL };
    let (socket, peer) = dial(&at, &[address], settings, &deadline)?;
    let mut control = ControlConnection::new(Transport::Plain(socket), peer, limit, &at, true)?;
    let greeting = control.reply("its greeting", &deadline)?;
    if !greeting.is_positive() {
        return Err(FtpError::Busy { at, reply: greeting });
    }
    let features = Features::parse(&control.ask_by(&Command::Feat, &deadline)?);
    Ok((greeting, features))
}

/// Requests the size of a file; `None` if the server does not report it.
///
/// # Errors
/// [`FtpError`].
pub(crate) fn file_size(
    url: &Url,
    config: &ClientConfig,
    cancel: &Cancel,
) -> Result<Option<Bytes>, FtpError> {
    let sessions = FtpSessions::default();
    let access = ServerAccess::new(RemoteAddress::of(url)?, config, &sessions)?;
    let (_, state) = access.open(cancel)?;
    Ok(state.size)
}

/// An open data connection, and its session.
pub(crate) struct MeasuredFlow {
    at: String,
    /// Kept open, because the server ends the transfer with the session.
    _session: Session,
    transport: Transport,
}

impl MeasuredFlow {
    /// Logs in and requests the file, from the start of part `part` of equal parts if the server
    /// supports offsets.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn open(
        url: &Url,
        config: &ClientConfig,
        (part, parts): (u32, u32),
        cancel: &Cancel,
    ) -> Result<Self, FtpError> {
        let sessions = FtpSessions::default();
        let access = ServerAccess::new(RemoteAddress::of(url)?, config, &sessions)?;
        let (mut session, state) = access.open(cancel)?;
        let start = state.size.map_or(0, |size| size.get() / u64::from(parts.max(1)) * u64::from(part));
        let start = if start > 0 && session.restarts(cancel)? { start } else { 0 };
        let transport = passive_connection::retrieve(&access, &mut session, start, cancel)?;
        Ok(Self { at: access.at().to_owned(), _session: session, transport })
    }

    /// Reads received bytes.
    ///
    /// # Errors
    /// [`FtpError::Data`].
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Received, FtpError> {
        self.transport.receive(buffer).map_err(|source| FtpError::Data { at: self.at.clone(), source })
    }

    /// Returns the socket of the data connection.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.transport.socket()
    }
}
