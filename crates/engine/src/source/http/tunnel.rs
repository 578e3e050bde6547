//! A tunnel through a proxy (CONNECT, RFC 9110, section 9.3.6).

use std::fmt::Write;
use std::net::TcpStream;

use url::Host;

use super::connection::send_all;
use super::error::HttpError;
use super::head_reader::read_head;
use super::inbox::Inbox;
use super::proxy::Proxy;
use super::safe_url::UrlAndPeer;
use super::transport::Transport;
use super::wait::Wait;

/// Asks the proxy at the other end of `socket` for a connection to `host`; gives the socket back once it leads there.
pub(super) fn open(
    socket: TcpStream,
    proxy: &Proxy,
    (host, port): (&Host<String>, u16),
    place: &UrlAndPeer,
    wait: &Wait<'_>,
) -> Result<TcpStream, HttpError> {
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(field) = &proxy.authorization {
        // Writing to a String cannot fail.
        let _ = write!(request, "{}: {}\r\n", field.name(), field.value());
    }
    request.push_str("\r\n");
    let (mut transport, mut inbox) = (Transport::Plain(socket), Inbox::default());
    send_all(&mut transport, request.as_bytes(), place, wait)?;
    let head = loop {
        let head = read_head(&mut transport, &mut inbox, place, wait)?;
        if !matches!(head.status(), 100..=199) {
            break head;
        }
    };
    // In TLS the client speaks first: bytes already here would not be the server's.
    match transport {
        Transport::Plain(socket) if matches!(head.status(), 200..=299) && inbox.data().is_empty() => {
            Ok(socket)
        }
        _ => Err(HttpError::ProxyRefused {
            place: place.clone(),
            status: head.status(),
            reason: head.reason().escape_debug().to_string(),
        }),
    }
}
