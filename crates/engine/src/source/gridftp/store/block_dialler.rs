//! Opens data connections of MODE E.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::units::Bytes;

use super::StoreSession;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, SocketSettings, Transport, dial};
use crate::source::gridftp::control::check;
use crate::source::gridftp::data_protection::DataProtection;
use crate::source::gridftp::error::FtpError;

impl<'a> StoreSession<'a> {
    /// Creates a dialler for an address returned by [`Self::listen_for_blocks`].
    pub(crate) fn dialler(&self, address: SocketAddr) -> BlockDialler<'a> {
        let access = &self.store.access;
        let (settings, limit) = (access.settings(), access.config.timeouts.connect);
        let protection = self.session.protection.clone();
        BlockDialler { settings, limit, address, protection, at: access.at() }
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
    /// Opens a data connection, encrypted like those of the session, and completes its handshake.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn dial(&self, cancel: &Cancel) -> Result<Transport, FtpError> {
        let deadline = Deadline::new(cancel, self.limit);
        let (socket, _) = dial(&self.address.to_string(), &[self.address], self.settings, &deadline)?;
        let transport = self.protection.over_connected(socket);
        let mut transport = transport.map_err(|error| FtpError::of_tls(self.at, &error))?;
        shake_hands(&mut transport, self.at, &deadline)
            .map_err(|error| error.while_connecting(self.address, self.limit))?;
        Ok(transport)
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Completes the TLS handshake, so that nothing is sent to an unverified peer.
pub(super) fn shake_hands(
    transport: &mut Transport,
    at: &str,
    deadline: &Deadline<'_>,
) -> Result<(), FtpError> {
    while transport.is_handshaking() {
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
