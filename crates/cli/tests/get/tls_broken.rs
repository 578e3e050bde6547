//! TLS records that are damaged on the way: each breaks its connection, and the transfer goes on over another.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{Ended, Serve, Server, content, get, same};

/// The type of application data, and in TLS 1.3 of all that is encrypted (RFC 8446, section 5.2).
const ENCRYPTED: u8 = 23;
const SIZE: usize = 24 << 20;

/// An encrypted record that passes through the relay.
struct Record {
    /// The connection's number, from 0.
    connection: usize,
    from_server: bool,
    /// The record's number among the encrypted ones of its direction, from 0. The client's 0 ends its handshake, 1 is its
    /// first request.
    number: usize,
    /// How many encrypted records the client has sent.
    requests: usize,
}

/// Passes connections on to the server at `to`, and flips one bit of each record that `hits` chooses.
fn relay(to: SocketAddr, hits: impl Fn(&Record) -> bool + Send + Sync + 'static) -> Server {
    Server::new(move |peer| {
        let (connection, requests) = (peer.number, AtomicUsize::new(0));
        let (client, server) = (&peer.stream, &TcpStream::connect(to).unwrap());
        let pass = |from_server: bool| {
            let (from, to) = if from_server { (server, client) } else { (client, server) };
            let mut number = 0;
            // Ends with either end of the connection.
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

/// Copies records; `seen` gets the payload of each encrypted one.
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

/// Fetches a file through a relay that damages what `hits` chooses.
fn fetch(args: &[&str], hits: impl Fn(&Record) -> bool + Send + Sync + 'static) -> (Ended, usize) {
    let site = Serve::start();
    let bytes = content(SIZE, 1);
    site.file("f", &bytes);
    let address = site.tls_url("").replace("https://localhost", "127.0.0.1").parse().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let most = connections.clone();
    let relay = relay(address, move |record| {
        most.fetch_max(record.connection + 1, Ordering::SeqCst);
        hits(record)
    });
    let url = format!("https://localhost:{}/f", relay.address.port());
    let run = get().args(args).args(["--cacert"]).args([site.ca()]).args([&url]);
    let ended = run.run();
    if ended.status.success() {
        same(run.path("f"), &bytes);
    }
    (ended, connections.load(Ordering::SeqCst))
}

#[test]
fn a_bit_that_flips_in_the_body_costs_one_connection() {
    for streams in ["1", "4"] {
        let (ended, connections) = fetch(&["--streams", streams], |record| {
            record.connection == 0 && record.from_server && record.number == 300
        });
        let ended = ended.ok();
        assert!(ended.stderr.contains("cannot receive from"), "{ended:?}");
        assert!((2..=streams.parse::<usize>().unwrap() + 1).contains(&connections), "{connections}");
    }
}

#[test]
fn a_bit_that_flips_in_the_head_or_the_request_costs_one_connection() {
    for from_server in [true, false] {
        let (ended, connections) = fetch(&["--streams", "1"], move |record| {
            record.connection == 0 && record.from_server == from_server && record.requests == 2
        });
        ended.ok();
        assert_eq!(connections, 2, "damaged from the server: {from_server}");
    }
}

#[test]
fn bits_that_always_flip_end_the_transfer_after_the_retries() {
    let (ended, connections) = fetch(&["--streams", "1", "--retries", "3"], |record| {
        // Before 64 KiB have come, which would count as progress.
        record.from_server && record.requests == 2
    });
    ended.fails(75, &["cannot receive from"]);
    assert_eq!(connections, 4);
}

#[test]
fn a_bit_that_flips_in_the_handshake_is_told_as_such() {
    let (ended, _) = fetch(&["--streams", "1"], |record| record.from_server && record.number == 0);
    ended.fails(76, &["cannot set up TLS"]);
}
