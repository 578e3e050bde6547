//! The handshake: a TLS connection whose records are the ADAT tokens of the control connection;
//! then the protected control connection, whose commands and replies are TLS records in base64 (RFC
//! 2228, section 4).

use std::fmt::Display;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::gridftp::{Command, Reply, adat_token, decode_token, encode_token};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::UnixTime;
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, ClientConnection};
use url::Host;

use super::credentials::GsiCredentials;
use super::handshake_failed;
use super::server_verifier::ServerVerifier;
use super::trust::Trust;
use crate::source::http::server_name;

/// The maximum number of tokens of a handshake; TLS takes two or three.
const MAX_TOKENS: usize = 16;

/// Sent after the handshake: the server receives no delegated credentials (`D` would start a
/// delegation).
const NO_DELEGATION: &[u8] = b"0";

/// The reply codes that continue the security exchange (RFC 2228, section 5.1).
const GO_ON: [u16; 2] = [334, 335];

/// The reply codes that complete the security exchange.
const COMPLETE: [u16; 2] = [234, 235];

/// Authenticates both ends of a control connection. `exchange` sends one command and returns its
/// reply.
///
/// # Errors
/// That of `exchange`, or a [`Failure`] if the server does not support GSI, refuses the
/// credentials, or does not match the URL.
pub(crate) fn authenticate<E: From<Failure>>(
    exchange: &mut dyn FnMut(&Command<'_>) -> Result<Reply, E>,
    host: &Host<String>,
    credentials: &GsiCredentials,
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

    /// Passes the token of a reply to the TLS connection. A TLS 1.3 server sends one byte of its
    /// own early, which is dropped.
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
        Ok(ControlSecurity { session: self.session, host: self.host })
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
    credentials: &GsiCredentials,
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

/// An authenticated control connection, on which every command and reply is encrypted.
pub(crate) struct ControlSecurity {
    session: ClientConnection,
    host: String,
}

impl ControlSecurity {
    /// Encrypts a command with its CRLF; returns the `ENC` command that carries it, with CRLF.
    ///
    /// # Errors
    /// [`Failure`] if the TLS connection has ended.
    pub(crate) fn wrap(&mut self, command: &[u8]) -> Result<Vec<u8>, Failure> {
        let record = encrypt(&mut self.session, command).map_err(|why| self.broken(&why))?;
        Ok(format!("ENC {}\r\n", encode_token(&record)).into_bytes())
    }

    /// Decrypts a 631, 632 or 633 reply; returns the bytes of the replies in it. Must be called in
    /// the order of arrival.
    ///
    /// # Errors
    /// [`Failure`] if the reply is in clear, contains no token, or was modified.
    pub(crate) fn unwrap(&mut self, reply: &Reply) -> Result<Vec<u8>, Failure> {
        if !reply.is_protected() {
            return Err(self.broken(&format!("the server sent a reply in clear: {reply}")));
        }
        let mut clear = Vec::new();
        for line in reply.lines.iter().filter(|line| !line.trim().is_empty()) {
            let record = decode_token(line).map_err(|error| self.broken(&error))?;
            let part = decrypt(&mut self.session, &record).map_err(|error| self.broken(&error))?;
            clear.extend(part);
        }
        Ok(clear)
    }

    fn broken(&self, why: &dyn Display) -> Failure {
        let message = format!("the protected control connection with {} is broken: {why}", self.host);
        Failure::new(FailureKind::Protocol, message)
    }
}

/// Encrypts bytes; returns all records that the TLS connection has to send.
fn encrypt(session: &mut ClientConnection, clear: &[u8]) -> Result<Vec<u8>, String> {
    let mut records = Vec::new();
    let mut left = clear;
    while !left.is_empty() {
        // The connection's buffer is bounded: each write takes a part.
        let taken = session.writer().write(left).map_err(|error| error.to_string())?;
        left = &left[taken..];
        take_records(session, &mut records)?;
        if taken == 0 {
            return Err("the connection takes no more data".to_owned());
        }
    }
    Ok(records)
}

/// Takes the records that the TLS connection has to send.
fn take_records(session: &mut ClientConnection, records: &mut Vec<u8>) -> Result<(), String> {
    while session.wants_write() {
        session.write_tls(records).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Passes records to the TLS connection; returns the decrypted bytes.
fn decrypt(session: &mut ClientConnection, mut records: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut clear = Vec::new();
    while !records.is_empty() {
        // Each call takes a part. A read from memory fails only if the connection's buffer is full.
        let taken =
            session.read_tls(&mut records).map_err(|error| rustls::Error::General(error.to_string()))?;
        let state = session.process_new_packets()?;
        let from = clear.len();
        clear.resize(from + state.plaintext_bytes_to_read(), 0);
        let read = session.reader().read_exact(&mut clear[from..]);
        read.map_err(|error| rustls::Error::General(error.to_string()))?;
        if taken == 0 || state.peer_has_closed() {
            return Err(rustls::Error::General("the server has closed the protected connection".to_owned()));
        }
    }
    Ok(clear)
}
