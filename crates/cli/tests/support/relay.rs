//! A relay to a real server that forwards only what a test permits.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::http::{HttpRequest, Peer, Server};

/// The relay's handling of a request.
pub(crate) enum RelayAction {
    /// Forward the request with this head.
    Head(String),
    /// The request has been answered.
    Answered,
    /// Close the connection.
    Cut,
}

/// Forwards requests to the server at `to`; closes the connection if `may_forward` returns false.
pub(crate) fn relay(
    to: SocketAddr,
    may_forward: impl Fn(&HttpRequest, &mut Peer) -> bool + Send + Sync + 'static,
) -> Server {
    relay_as(to, move |request, peer| match may_forward(request, peer) {
        true => RelayAction::Head(request.head.clone()),
        false => RelayAction::Cut,
    })
}

/// Handles each request to the server at `to` as `choose` decides.
pub(crate) fn relay_as(
    to: SocketAddr,
    choose: impl Fn(&HttpRequest, &mut Peer) -> RelayAction + Send + Sync + 'static,
) -> Server {
    relay_pieces(to, choose, |_, _, _| {})
}

/// Like [`relay_as`]; `seen` may change each piece of a body, which begins at this offset in the body.
pub(crate) fn relay_pieces(
    to: SocketAddr,
    choose: impl Fn(&HttpRequest, &mut Peer) -> RelayAction + Send + Sync + 'static,
    seen: impl Fn(&HttpRequest, usize, &mut [u8]) + Send + Sync + 'static,
) -> Server {
    Server::new(move |peer| {
        let mut server = TcpStream::connect(to).unwrap();
        let (mut answers, mut client) = (server.try_clone().unwrap(), peer.stream.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            let _ = io::copy(&mut answers, &mut client);
            let _ = client.shutdown(Shutdown::Both);
        });
        while let Some(request) = peer.read_request() {
            match choose(&request, peer) {
                RelayAction::Head(head) if pass(&request, &head, peer, &mut server, &seen).is_ok() => {}
                RelayAction::Answered => {}
                RelayAction::Head(_) | RelayAction::Cut => break,
            }
        }
        let _ = server.shutdown(Shutdown::Both);
        back.join().unwrap();
    })
}

/// Forwards a request with its body; fails if an end closes before the body is complete.
fn pass(
    request: &HttpRequest,
    head: &str,
    peer: &Peer,
    server: &mut TcpStream,
    seen: impl Fn(&HttpRequest, usize, &mut [u8]),
) -> io::Result<()> {
    let length = request.field("content-length").map_or(0, |length| length.parse().unwrap());
    server.write_all(head.as_bytes())?;
    let (mut at, mut buffer) = (0, vec![0; 64 << 10]);
    while at < length {
        let most = buffer.len().min(length - at);
        let count = (&peer.stream).read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        seen(request, at, &mut buffer[..count]);
        server.write_all(&buffer[..count])?;
        at += count;
    }
    Ok(())
}
