//! A server in front of a real one, which it lets be heard only as far as a test wants.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::http::{Ask, Peer, Server};

/// Passes requests on to the server at `to`; where `meddle` returns false the connection ends instead.
pub(crate) fn relay(
    to: SocketAddr,
    meddle: impl Fn(&Ask, &mut Peer) -> bool + Send + Sync + 'static,
) -> Server {
    Server::new(move |peer| {
        let mut server = TcpStream::connect(to).unwrap();
        let (mut answers, mut client) = (server.try_clone().unwrap(), peer.stream.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            let _ = io::copy(&mut answers, &mut client);
            let _ = client.shutdown(Shutdown::Both);
        });
        while let Some(ask) = peer.ask() {
            if !meddle(&ask, peer) || !pass(&ask, peer, &mut server) {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
        back.join().unwrap();
    })
}

/// Passes a request on with its body; returns whether all of it came.
fn pass(ask: &Ask, peer: &Peer, server: &mut TcpStream) -> bool {
    let length = ask.field("content-length").map_or(0, |length| length.parse().unwrap());
    server.write_all(ask.head.as_bytes()).is_ok()
        && io::copy(&mut (&peer.stream).take(length), server).is_ok_and(|copied| copied == length)
}
