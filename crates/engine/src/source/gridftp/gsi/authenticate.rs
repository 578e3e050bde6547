//! The handshake: a TLS connection whose records are the ADAT tokens of the control connection.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::gridftp::{Command, Reply, adat_token, encode_token};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::UnixTime;
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, ClientConnection};
use url::Host;

use super::control_security::{ControlSecurity, decrypt, encrypt, take_records};
use super::credentials::Credentials;
use super::handshake_failed;
use super::server_verifier::ServerVerifier;
use super::trust::Trust;
use crate::source::http::server_name;

/// The maximum number of tokens of a handshake; TLS takes two or three.
const MAX_TOKENS: usize = 16;

/// Sent after the handshake: the server receives no delegated credentials (`D` would start a delegation).
const NO_DELEGATION: &[u8] = b"0";

/// The reply codes that continue the security exchange (RFC 2228, section 5.1).
const GO_ON: [u16; 2] = [334, 335];

/// The reply codes that complete the security exchange.
const COMPLETE: [u16; 2] = [234, 235];

/// Authenticates both ends of a control connection. `exchange` sends one command and returns its reply.
///
/// # Errors
/// That of `exchange`, or a [`Failure`] if the server does not support GSI, refuses the credentials, or does not match the URL.
pub(crate) fn authenticate<E: From<Failure>>(
    exchange: &mut dyn FnMut(&Command<'_>) -> Result<Reply, E>,
    host: &Host<String>,
    credentials: &Credentials,
    trust: Trust,
    now: SystemTime,
) -> Result<ControlSecurity, E> {
    let mut handshake =
        Handshake { session: connection(host, credentials, trust, now)?, host: host.to_string() };
    let reply = exchange(&Command::Auth("GSSAPI"))?;
    if !GO_ON.contains(&reply.code) {
        let message = format!(
            "{host} refused GSI authentication: {reply}; for a server without GSI use ftp:// or ftps://"
        );
        return Err(Failure::new(FailureKind::Protocol, message).into());
    }
    let mut has_answered = false;
    for _ in 0..MAX_TOKENS {
        let (token, is_last) = handshake.next_token(&mut has_answered)?;
        let reply = exchange(&Command::Adat(&encode_token(&token)))?;
        let is_complete = COMPLETE.contains(&reply.code);
        if !GO_ON.contains(&reply.code) && !is_complete {
            let message = format!(
                "{host} refused the credentials of {}: {reply}; check that the server trusts their authority and that they are not expired",
                credentials.subject
            );
            return Err(Failure::new(FailureKind::Denied, message).into());
        }
        handshake.take(&reply)?;
        if is_complete {
            return Ok(handshake.complete(is_last)?);
        }
    }
    Err(handshake.failed(&"it takes too many messages").into())
}

/// A handshake in progress.
struct Handshake {
    session: ClientConnection,
    host: String,
}

impl Handshake {
    /// Returns the next token to send, and whether it is the client's last.
    fn next_token(&mut self, said_no_delegation: &mut bool) -> Result<(Vec<u8>, bool), Failure> {
        let mut token = Vec::new();
        take_records(&mut self.session, &mut token).map_err(|why| self.failed(&why))?;
        if token.is_empty() && !self.session.is_handshaking() && !*said_no_delegation {
            *said_no_delegation = true;
            token = encrypt(&mut self.session, NO_DELEGATION).map_err(|why| self.failed(&why))?;
        }
        if token.is_empty() {
            return Err(self.failed(&"the server waits for a message that is not due"));
        }
        Ok((token, *said_no_delegation))
    }

    /// Passes the token of a reply to the TLS connection. A TLS 1.3 server sends one byte of its own early, which is
    /// dropped.
    fn take(&mut self, reply: &Reply) -> Result<(), Failure> {
        let token = adat_token(reply).map_err(|error| self.failed(&error))?;
        let Some(token) = token else { return Ok(()) };
        match decrypt(&mut self.session, &token) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.of_tls(&error)),
        }
    }

    fn complete(self, is_last: bool) -> Result<ControlSecurity, Failure> {
        if self.session.is_handshaking() || !is_last {
            return Err(self.failed(&"the server ended it too early"));
        }
        Ok(ControlSecurity::new(self.session, self.host))
    }

    fn failed(&self, why: &dyn Display) -> Failure {
        handshake_failed(&self.host, why)
    }

    /// Returns the verifier's error if the verifier rejected the certificate.
    fn of_tls(&self, error: &rustls::Error) -> Failure {
        if let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error
            && let Some(refusal) = other.0.downcast_ref::<Failure>()
        {
            return refusal.clone();
        }
        self.failed(error)
    }
}

/// Creates the TLS connection: TLS 1.2 or 1.3, the user's chain, the grid's authorities.
fn connection(
    host: &Host<String>,
    credentials: &Credentials,
    trust: Trust,
    now: SystemTime,
) -> Result<ClientConnection, Failure> {
    let shown = host.to_string();
    let fail = |error: &dyn Display| handshake_failed(&shown, error);
    let name = server_name(host).map_err(|why| fail(&why))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = ServerVerifier {
        trust,
        provider: Arc::clone(&provider),
        host: shown.clone(),
        now: UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default()),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        // with_client_auth_cert refuses proxies, whose critical extension is unknown to rustls.
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&credentials.key))));
    config.resumption = Resumption::disabled();
    ClientConnection::new(Arc::new(config), name).map_err(|error| fail(&error))
}
