//! Relays to real servers: one that forwards only what a test permits, and one that corrupts TLS
//! records.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

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

/// Like [`relay_as`]; `seen` may change each piece of a body, which begins at this offset in the
/// body.
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

/// The record type of application data, and in TLS 1.3 of all encrypted records (RFC 8446, section
/// 5.2).
const ENCRYPTED: u8 = 23;

/// An encrypted record in the relay.
pub(crate) struct Record {
    /// The connection's number, from 0.
    pub(crate) connection: usize,
    pub(crate) from_server: bool,
    /// The record's number among the encrypted ones of its direction, from 0. The client's record 0
    /// ends its handshake, record 1 is its first request.
    pub(crate) number: usize,
    /// Number of encrypted records that the client has sent.
    pub(crate) requests: usize,
}

/// Forwards connections to the server at `to`, and flips one bit of each record selected by `hits`.
pub(crate) fn damaging(to: SocketAddr, hits: impl Fn(&Record) -> bool + Send + Sync + 'static) -> Server {
    Server::new(move |peer| {
        let (connection, requests) = (peer.number, AtomicUsize::new(0));
        let (client, server) = (&peer.stream, &TcpStream::connect(to).unwrap());
        let pass = |from_server: bool| {
            let (from, to) = if from_server { (server, client) } else { (client, server) };
            let mut number = 0;
            // Ends when either end of the connection closes.
            let _ = records(from, to, |payload| {
                if !from_server {
                    requests.fetch_add(1, Ordering::SeqCst);
                }
                let requests = requests.load(Ordering::SeqCst);
                if hits(&Record { connection, from_server, number, requests }) {
                    let middle = payload.len() / 2;
                    payload[middle] ^= 1;
                }
                number += 1;
            });
            let _ = to.shutdown(Shutdown::Write);
        };
        thread::scope(|threads| {
            threads.spawn(|| pass(false));
            pass(true);
        });
    })
}

/// Copies records; `seen` receives the payload of each encrypted one.
fn records(mut from: &TcpStream, mut to: &TcpStream, mut seen: impl FnMut(&mut [u8])) -> io::Result<()> {
    loop {
        let mut record = vec![0; 5];
        from.read_exact(&mut record)?;
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        from.read_exact(&mut record[5..])?;
        if record[0] == ENCRYPTED {
            seen(&mut record[5..]);
        }
        to.write_all(&record)?;
    }
}
