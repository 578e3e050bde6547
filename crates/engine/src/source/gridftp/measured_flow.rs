//! A file's bytes as MODE S brings them, for a measurement: nothing is kept, and the end is where the receiver stops.

use std::net::TcpStream;

use longhaul_core::units::Bytes;
use url::Url;

use super::error::FtpError;
use super::login::ServerAccess;
use super::passive;
use super::remote_address::RemoteAddress;
use super::sessions::{Session, Sessions};
use crate::cancel::Cancel;
use crate::connect::{Received, Transport};
use crate::source::http::{ClientConfig, Read};

/// Asks the server for the size of a file; `None` where it does not tell.
///
/// # Errors
/// [`FtpError`].
pub(crate) fn file_size(
    url: &Url,
    config: &ClientConfig,
    cancel: &Cancel,
) -> Result<Option<Bytes>, FtpError> {
    let sessions = Sessions::default();
    let access = ServerAccess::new(RemoteAddress::of(url)?, config, &sessions)?;
    let (_, state) = access.open(cancel)?;
    Ok(state.size)
}

/// A data connection in mid-file, and its session.
pub(crate) struct MeasuredFlow {
    at: String,
    /// The server ends the transfer with the session.
    _session: Session,
    transport: Transport,
}

impl MeasuredFlow {
    /// Logs in and requests the file: from the beginning of its `part`-th of so many equal parts, where the server lets it.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn open(
        url: &Url,
        config: &ClientConfig,
        (part, parts): (u32, u32),
        cancel: &Cancel,
    ) -> Result<Self, FtpError> {
        let sessions = Sessions::default();
        let access = ServerAccess::new(RemoteAddress::of(url)?, config, &sessions)?;
        let (mut session, state) = access.open(cancel)?;
        let start = state.size.map_or(0, |size| size.get() / u64::from(parts.max(1)) * u64::from(part));
        let sequential = sessions.is_sequential(&session.key);
        let start = if start > 0 && session.restarts(sequential, access.at(), cancel)? { start } else { 0 };
        let transport = passive::retrieve(&access, &mut session, start, cancel)?;
        Ok(Self { at: access.at().to_owned(), _session: session, transport })
    }

    /// Reads what has come.
    ///
    /// # Errors
    /// [`FtpError::Data`].
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Read, FtpError> {
        match self.transport.receive(buffer) {
            Ok(Received::Data(more)) => Ok(Read::Data(more)),
            Ok(Received::Idle) => Ok(Read::Idle),
            Ok(Received::End { .. }) => Ok(Read::End),
            Err(source) => Err(FtpError::Data { at: self.at.clone(), source }),
        }
    }

    /// Returns the socket of the data connection.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.transport.socket()
    }
}
