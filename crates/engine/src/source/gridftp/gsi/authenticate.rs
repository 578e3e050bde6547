//! The handshake: a TLS connection whose records are the ADAT tokens of the control connection.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::proto::gridftp::{Command, Reply, adat_token, encode_token};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, ClientConnection};
use thiserror::Error;
use url::Host;

use super::control_security::{ControlSecurity, decrypt, encrypt, take_records};
use super::credentials::Credentials;
use super::error::GsiError;
use super::server_verifier::ServerVerifier;
use super::trust::Trust;

/// The maximum number of tokens of a handshake; TLS takes two or three.
const MAX_TOKENS: usize = 16;

/// Sent after the handshake: the server receives no delegated credentials (`D` would start a delegation).
const NO_DELEGATION: &[u8] = b"0";

/// The reply codes that continue the security exchange (RFC 2228, section 5.1).
const GO_ON: [u16; 2] = [334, 335];

/// The reply codes that complete the security exchange.
const COMPLETE: [u16; 2] = [234, 235];

/// An error of the handshake: of the underlying control connection, or of GSI.
#[derive(Debug, Error)]
pub(crate) enum AuthenticateError<E> {
    /// A command could not be exchanged.
    #[error("{0}")]
    Exchange(E),
    /// GSI failed.
    #[error(transparent)]
    Gsi(#[from] GsiError),
}

/// Authenticates both ends of a control connection. `exchange` sends one command and returns its reply.
///
/// # Errors
/// [`AuthenticateError::Gsi`] if the server does not support GSI, refuses the credentials, or does not match the URL.
pub(crate) fn authenticate<E>(
    exchange: &mut dyn FnMut(&Command<'_>) -> Result<Reply, E>,
    host: &Host<String>,
    credentials: &Credentials,
    trust: &Trust,
    now: SystemTime,
) -> Result<ControlSecurity, AuthenticateError<E>> {
    let mut handshake =
        Handshake { session: connection(host, credentials, trust, now)?, host: host.to_string() };
    let reply = exchange(&Command::Auth("GSSAPI")).map_err(AuthenticateError::Exchange)?;
    if !GO_ON.contains(&reply.code) {
        return Err(GsiError::NotOffered { host: handshake.host, reply: reply.to_string() }.into());
    }
    let mut has_answered = false;
    for _ in 0..MAX_TOKENS {
        let (token, is_last) = handshake.next_token(&mut has_answered)?;
        let reply = exchange(&Command::Adat(&encode_token(&token))).map_err(AuthenticateError::Exchange)?;
        let is_complete = COMPLETE.contains(&reply.code);
        if !GO_ON.contains(&reply.code) && !is_complete {
            let subject = credentials.subject().to_owned();
            return Err(GsiError::Refused { host: handshake.host, subject, reply: reply.to_string() }.into());
        }
        handshake.take(&reply)?;
        if is_complete {
            return handshake.complete(is_last).map_err(AuthenticateError::Gsi);
        }
    }
    Err(handshake.failed("it takes too many messages").into())
}

/// A handshake in progress.
struct Handshake {
    session: ClientConnection,
    host: String,
}

impl Handshake {
    /// Returns the next token to send, and whether it is the client's last.
    fn next_token(&mut self, said_no_delegation: &mut bool) -> Result<(Vec<u8>, bool), GsiError> {
        let mut token = Vec::new();
        take_records(&mut self.session, &mut token).map_err(|why| self.failed(&why))?;
        if token.is_empty() && !self.session.is_handshaking() && !*said_no_delegation {
            *said_no_delegation = true;
            token = encrypt(&mut self.session, NO_DELEGATION).map_err(|why| self.failed(&why))?;
        }
        if token.is_empty() {
            return Err(self.failed("the server waits for a message that is not due"));
        }
        Ok((token, *said_no_delegation))
    }

    /// Passes the token of a reply to the TLS connection. A TLS 1.3 server sends one byte of its own early, which is
    /// dropped.
    fn take(&mut self, reply: &Reply) -> Result<(), GsiError> {
        let token = adat_token(reply).map_err(|error| self.failed(&error.to_string()))?;
        let Some(token) = token else { return Ok(()) };
        match decrypt(&mut self.session, &token) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.of_tls(&error)),
        }
    }

    fn complete(self, is_last: bool) -> Result<ControlSecurity, GsiError> {
        if self.session.is_handshaking() || !is_last {
            return Err(self.failed("the server ended it too early"));
        }
        Ok(ControlSecurity::new(self.session, self.host))
    }

    fn failed(&self, why: &str) -> GsiError {
        GsiError::Handshake { host: self.host.clone(), why: why.to_owned() }
    }

    /// Returns the verifier's error if the verifier rejected the certificate.
    fn of_tls(&self, error: &rustls::Error) -> GsiError {
        if let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error
            && let Some(refusal) = other.0.downcast_ref::<GsiError>()
        {
            return refusal.clone();
        }
        self.failed(&error.to_string())
    }
}

/// Creates the TLS connection: TLS 1.2 or 1.3, the user's chain, the grid's authorities.
fn connection(
    host: &Host<String>,
    credentials: &Credentials,
    trust: &Trust,
    now: SystemTime,
) -> Result<ClientConnection, GsiError> {
    let shown = host.to_string();
    let fail = |why: String| GsiError::Handshake { host: shown.clone(), why };
    let name = match host {
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| fail(error.to_string()))?,
        Host::Ipv4(address) => ServerName::IpAddress(std::net::IpAddr::V4(*address).into()),
        Host::Ipv6(address) => ServerName::IpAddress(std::net::IpAddr::V6(*address).into()),
    };
    let provider = Arc::new(ring::default_provider());
    let verifier = ServerVerifier {
        trust: trust.clone(),
        provider: Arc::clone(&provider),
        host: shown.clone(),
        now: UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default()),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        // with_client_auth_cert refuses proxies, whose critical extension is unknown to rustls.
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(credentials.certified_key())));
    config.resumption = Resumption::disabled();
    ClientConnection::new(Arc::new(config), name).map_err(|error| fail(error.to_string()))
}
