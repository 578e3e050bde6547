//! A server in front of a real one, which passes on only as much as a test wants.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::http::{Ask, Peer, Server};

/// What a relay does with a request.
pub(crate) enum Relayed {
    /// Passes it on with this head.
    Head(String),
    /// Nothing: it is answered.
    Answered,
    /// Ends the connection.
    Cut,
}

/// Passes requests on to the server at `to`; where `meddle` returns false the connection ends instead.
pub(crate) fn relay(
    to: SocketAddr,
    meddle: impl Fn(&Ask, &mut Peer) -> bool + Send + Sync + 'static,
) -> Server {
    relay_as(to, move |ask, peer| match meddle(ask, peer) {
        true => Relayed::Head(ask.head.clone()),
        false => Relayed::Cut,
    })
}

/// Does with each request to the server at `to` what `choose` says.
pub(crate) fn relay_as(
    to: SocketAddr,
    choose: impl Fn(&Ask, &mut Peer) -> Relayed + Send + Sync + 'static,
) -> Server {
    Server::new(move |peer| {
        let mut server = TcpStream::connect(to).unwrap();
        let (mut answers, mut client) = (server.try_clone().unwrap(), peer.stream.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            let _ = io::copy(&mut answers, &mut client);
            let _ = client.shutdown(Shutdown::Both);
        });
        while let Some(ask) = peer.ask() {
            match choose(&ask, peer) {
                Relayed::Head(head) if pass(&ask, &head, peer, &mut server) => {}
                Relayed::Answered => {}
                Relayed::Head(_) | Relayed::Cut => break,
            }
        }
        let _ = server.shutdown(Shutdown::Both);
        back.join().unwrap();
    })
}

/// Passes a request on with its body; returns whether all of it came.
fn pass(ask: &Ask, head: &str, peer: &Peer, server: &mut TcpStream) -> bool {
    let length = ask.field("content-length").map_or(0, |length| length.parse().unwrap());
    server.write_all(head.as_bytes()).is_ok()
        && io::copy(&mut (&peer.stream).take(length), server).is_ok_and(|copied| copied == length)
}
