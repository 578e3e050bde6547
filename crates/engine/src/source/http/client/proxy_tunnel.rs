//! Opens a tunnel through a proxy: CONNECT to an HTTP proxy, or the handshake of SOCKS 5.

use std::fmt::Write;
use std::net::TcpStream;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::socks5::{SocksError, SocksHandshake, SocksStep, SocksTarget};
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use url::Host;

use crate::connect::{Deadline, Received, Transport};
use crate::source::http::connection::buffered_transport::BufferedTransport;
use crate::source::http::error::{HttpError, check};
use crate::source::http::target::proxy::Proxy;
use crate::source::http::target::safe_url::UrlAndPeer;

/// What the proxy is waited for.
const HANDSHAKE: &str = "the proxy's handshake";

impl Proxy {
    /// Requests a tunnel to `host` from the proxy connected by `socket` (CONNECT, RFC 9110, section
    /// 9.3.6); returns the socket of the tunnel.
    pub(super) fn tunnel(
        &self,
        socket: TcpStream,
        (host, port): (&Host<String>, u16),
        at: &UrlAndPeer,
        deadline: &Deadline<'_>,
    ) -> Result<TcpStream, HttpError> {
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some(field) = &self.authorization {
            // Writing to a String cannot fail.
            let _ = write!(request, "{}: {}\r\n", field.name(), field.value());
        }
        request.push_str("\r\n");
        let mut transport = BufferedTransport::new(Transport::Plain(socket), at.clone());
        transport.send_all(request.as_bytes(), "taking the request", deadline)?;
        let head = loop {
            let head = transport.read_head(deadline)?;
            if !matches!(head.status(), 100..=199) {
                break head;
            }
            check(deadline, at, "its answer")?;
        };
        // In TLS the client sends first: bytes received already would not be the server's.
        let socket = transport.into_socket().filter(|_| matches!(head.status(), 200..=299));
        socket.ok_or_else(|| {
            let (status, reason) = (head.status(), head.reason().escape_debug().to_string());
            let message = format!(
                "the proxy of {at} refused the connection: {status} {reason}; check the proxy's settings and login"
            );
            let failure = Failure::new(FailureKind::of_status(status), message);
            failure.with_retry(Retry::of_status(status, None)).into()
        })
    }

    /// Requests a connection to `target` from the SOCKS proxy connected by `socket`; returns the
    /// socket of the tunnel.
    pub(super) fn connect_socks(
        &self,
        socket: TcpStream,
        target: SocksTarget,
        at: &UrlAndPeer,
        deadline: &Deadline<'_>,
    ) -> Result<TcpStream, HttpError> {
        let fail = |error| socks_error(&error, at);
        let mut handshake = SocksHandshake::new(target, self.login.clone()).map_err(fail)?;
        let mut transport = BufferedTransport::new(Transport::Plain(socket), at.clone());
        let (mut received, mut message) = (Vec::new(), handshake.greeting());
        loop {
            transport.send_all(&message, HANDSHAKE, deadline)?;
            message = loop {
                match handshake.receive(&received).map_err(fail)? {
                    SocksStep::Send(taken, message) => {
                        received.drain(..taken);
                        break message;
                    }
                    SocksStep::Connected(_) => {
                        return transport.into_socket().ok_or_else(|| Failure::interrupted().into());
                    }
                    SocksStep::More => {}
                }
                check(deadline, at, HANDSHAKE)?;
                // One byte at a time, because bytes after the reply are the server's.
                let mut byte = [0];
                match transport.read(&mut byte)? {
                    Received::Data(_) => received.extend(byte),
                    Received::Idle => {}
                    Received::End { .. } => return Err(HttpError::ClosedBeforeHead(at.clone(), Bytes::ZERO)),
                }
            };
        }
    }
}

/// Creates the error of a SOCKS proxy.
fn socks_error(error: &SocksError, at: &UrlAndPeer) -> HttpError {
    let kind = match error {
        SocksError::NeedsLogin | SocksError::Denied => FailureKind::Denied,
        SocksError::NotSocks => FailureKind::Protocol,
        SocksError::TooLong => FailureKind::Usage,
        SocksError::Refused(_) => FailureKind::Unavailable,
    };
    let failure = Failure::new(kind, format!("the proxy of {at} cannot be used: {error}"));
    match error {
        // A retry helps after a general failure, or if the host could not be reached; it does not
        // change rules (RFC 1928, section 6).
        SocksError::Refused(1 | 3..=6) => HttpError::SocksRefused(failure),
        SocksError::Refused(_) => HttpError::SocksRefused(failure.with_retry(Retry::Never)),
        _ => failure.into(),
    }
}
