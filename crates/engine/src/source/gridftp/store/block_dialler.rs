//! Opens data connections of MODE E.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::units::Bytes;

use super::StoreSession;
use crate::cancel::Cancel;
use crate::connect::{Deadline, SocketSettings, Transport, dial};
use crate::source::gridftp::data_protection::DataProtection;
use crate::source::gridftp::error::FtpError;
use crate::source::gridftp::stream_data_connection::check_handshake;

impl<'a> StoreSession<'a> {
    /// Creates a dialler for an address returned by [`Self::listen_for_blocks`].
    pub(crate) fn dialler(&self, address: SocketAddr) -> BlockDialler<'a> {
        let access = &self.store.access;
        let (limit, handshake_limit) = (access.config.timeouts.connect, access.handshake_limit());
        let protection = self.session.protection.clone();
        let settings = access.config.sockets();
        BlockDialler { settings, limit, handshake_limit, address, protection, at: access.at() }
    }
}

/// Opens data connections of MODE E, from any thread.
pub(crate) struct BlockDialler<'a> {
    settings: SocketSettings<'a>,
    limit: Duration,
    handshake_limit: Duration,
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
        if let Transport::Tls(_) = transport {
            self.shake_hands(&mut transport, &Deadline::new(cancel, self.handshake_limit))?;
        }
        Ok(transport)
    }

    /// Completes the TLS handshake, so that nothing is sent to an unverified peer.
    fn shake_hands(&self, transport: &mut Transport, deadline: &Deadline<'_>) -> Result<(), FtpError> {
        while transport.await_handshake().map_err(|source| FtpError::of_handshake(self.at, source))? {
            check_handshake(deadline, self.at, self.address)?;
        }
        match transport.poll_readable(&mut [0], Duration::ZERO) {
            None => Ok(()),
            Some(0) => Err(FtpError::ClosedEarly { at: self.at.to_owned(), got: Bytes::ZERO }),
            Some(_) => Err(FtpError::unrequested(self.at, "data")),
        }
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
