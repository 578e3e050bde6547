//! A relay that corrupts TLS records.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::http::Server;

/// The record type of application data, and in TLS 1.3 of all encrypted records (RFC 8446, section 5.2).
const ENCRYPTED: u8 = 23;

/// An encrypted record in the relay.
pub(crate) struct Record {
    /// The connection's number, from 0.
    pub(crate) connection: usize,
    pub(crate) from_server: bool,
    /// The record's number among the encrypted ones of its direction, from 0. The client's record 0 ends its handshake,
    /// record 1 is its first request.
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
