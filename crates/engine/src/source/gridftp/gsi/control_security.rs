//! The protected control connection: commands and replies as TLS records in base64 (RFC 2228, section 4).

use std::fmt::Display;
use std::io::{Read, Write};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::gridftp::{Reply, decode_token, encode_token};
use rustls::ClientConnection;

/// An authenticated control connection, on which every command and reply is encrypted.
pub(crate) struct ControlSecurity {
    session: ClientConnection,
    host: String,
}

impl ControlSecurity {
    pub(super) fn new(session: ClientConnection, host: String) -> Self {
        Self { session, host }
    }

    /// Encrypts a command with its CRLF; returns the `ENC` command that carries it, with CRLF.
    ///
    /// # Errors
    /// [`Failure`] if the TLS connection has ended.
    pub(crate) fn wrap(&mut self, command: &[u8]) -> Result<Vec<u8>, Failure> {
        let record = encrypt(&mut self.session, command).map_err(|why| self.broken(&why))?;
        Ok(format!("ENC {}\r\n", encode_token(&record)).into_bytes())
    }

    /// Decrypts a 631, 632 or 633 reply; returns the bytes of the replies in it. Must be called in the order of
    /// arrival.
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
pub(super) fn encrypt(session: &mut ClientConnection, clear: &[u8]) -> Result<Vec<u8>, String> {
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
pub(super) fn take_records(session: &mut ClientConnection, records: &mut Vec<u8>) -> Result<(), String> {
    while session.wants_write() {
        session.write_tls(records).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Passes records to the TLS connection; returns the decrypted bytes.
pub(super) fn decrypt(session: &mut ClientConnection, mut records: &[u8]) -> Result<Vec<u8>, rustls::Error> {
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
