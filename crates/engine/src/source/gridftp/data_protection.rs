//! The encryption of data connections.
//!
//! A data connection is [`Clear`](DataProtection::Clear) unless the server has accepted PROT P and
//! both ends can authenticate. With GSI, servers accept PROT P alone, and still send data in clear.

use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection};

use super::gsi::DataCredential;
use crate::connect::Transport;

/// The number of tickets kept per control connection: each data connection uses one and receives
/// one or two.
const TICKETS: usize = 32;

/// The protection of the data connections of one control connection.
#[derive(Debug, Clone)]
pub(super) enum DataProtection {
    /// None.
    Clear,
    /// GSI: TLS with a certificate of this control connection at both ends.
    Gsi(DataCredential),
    /// FTPS: TLS that resumes the session of the control connection.
    Ftps(FtpsClient),
}

/// The TLS settings of one FTPS control connection and its data connections.
#[derive(Debug, Clone)]
pub(super) struct FtpsClient {
    settings: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl FtpsClient {
    /// Derives the settings from those of HTTPS, so that certificates are verified alike.
    ///
    /// Servers accept a data connection only with a session of its own control connection, and
    /// server processes have separate ticket keys. Sessions of other control connections must
    /// therefore not be offered.
    pub(super) fn new(https: &ClientConfig, name: ServerName<'static>) -> Self {
        let mut settings = https.clone();
        settings.alpn_protocols = Vec::new();
        settings.resumption = Resumption::in_memory_sessions(TICKETS);
        Self { settings: Arc::new(settings), name }
    }

    /// Returns a new TLS connection.
    pub(super) fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.settings), self.name.clone())
    }
}

impl DataProtection {
    /// Wraps a connection to the server, or one that the server has opened (`accepted`). The caller
    /// completes the handshake, or it takes place while data is received.
    pub(super) fn over(&self, socket: TcpStream, accepted: bool) -> Result<Transport, rustls::Error> {
        let session = match self {
            Self::Clear => return Ok(Transport::Plain(socket)),
            Self::Gsi(credential) if accepted => {
                Connection::from(ServerConnection::new(Arc::clone(&credential.server))?)
            }
            Self::Gsi(credential) => {
                // The name is ignored, because the certificate is pinned.
                let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
                Connection::from(ClientConnection::new(Arc::clone(&credential.client), name)?)
            }
            // RFC 4217, section 7: the FTP client is the TLS client, whichever end connects.
            Self::Ftps(client) => Connection::from(client.connection()?),
        };
        Ok(Transport::tls(session, socket))
    }
}
