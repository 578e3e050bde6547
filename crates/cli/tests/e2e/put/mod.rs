//! End-to-end tests of `longhaul put` against real servers, and against scripted servers with
//! behaviour that no real server shows on demand.

mod answers;
mod completing;
mod corruption;
mod dav;
mod disks;
mod interface;
mod real_servers;
mod redirects;
mod resuming;
mod scripted_dav;
mod serve;
mod sources;
mod streams;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::support::{Ended, HttpRequest, Peer, Put, RelayAction, Server, Site, Writable, put, relay_pieces};

const MIB: usize = 1 << 20;
/// The answer of a server that resumes uploads.
const RESUMABLE: &str = "204 Yes\r\nAccept-Patch: application/partial-upload";
/// The answer to a method that the server lacks.
const UNKNOWN: &str = "405 No\r\nContent-Length: 0";
/// The answer for a file that is stored.
const MADE: &str = "201 Made\r\nContent-Length: 0";

fn put_of(bytes: &[u8], args: &[&str]) -> Put {
    put().args(args).file("f", bytes)
}

/// A put of `f` to `url`, with the server's token.
fn put_to(url: &str, site: &Writable, bytes: &[u8]) -> Put {
    put_of(bytes, &["--json", "--token", site.token().to_str().unwrap(), "f", url])
}

/// A put of `f` to `path` of the server, with its token.
fn to(site: &Writable, path: &str, bytes: &[u8]) -> Put {
    put_to(&site.url(path), site, bytes)
}

fn address_of(site: &Site) -> SocketAddr {
    site.url("").trim_start_matches("http://").parse().unwrap()
}

fn method(request: &HttpRequest) -> &str {
    request.head.split(' ').next().unwrap()
}

/// Reads `length` bytes of a body; returns those received before the client closed.
fn read(peer: &Peer, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = (&peer.stream).take(length as u64).read_to_end(&mut bytes);
    bytes
}

/// Sends a 100 Continue if the client waits for one; returns the length of the body.
fn permit(peer: &mut Peer, request: &HttpRequest) -> usize {
    if request.field("expect").is_some() {
        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    request.field("content-length").map_or(0, |length| length.parse().unwrap())
}

/// Permits and reads the body of a request.
fn body(peer: &mut Peer, request: &HttpRequest) -> Vec<u8> {
    let length = permit(peer, request);
    read(peer, length)
}

/// A server that sends the status line and the fields that `answer` returns for each request; it
/// closes the connection after an empty answer.
fn answering(answer: impl Fn(&mut Peer, &HttpRequest) -> String + Send + Sync + 'static) -> Server {
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let answer = answer(peer, &request);
            if answer.is_empty() || !peer.send(format!("HTTP/1.1 {answer}\r\n\r\n")) {
                return;
            }
        }
    })
}

/// Sends interim answers for longer than a stall timeout of 1 s.
fn keep_waiting(peer: &mut Peer) {
    for _ in 0..15 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        peer.send("HTTP/1.1 102 Processing\r\n\r\n");
    }
}

/// Forwards requests to `to`; calls `act` once, as soon as half a MiB of a body has been forwarded.
fn midway(to: SocketAddr, act: impl Fn() + Send + Sync + 'static) -> Server {
    let done = AtomicBool::new(false);
    let forward = |request: &HttpRequest, _: &mut Peer| RelayAction::Head(request.head.clone());
    relay_pieces(to, forward, move |_, at, _| {
        if at >= MIB / 2 && !done.swap(true, Ordering::SeqCst) {
            act();
        }
    })
}

/// Forwards requests to `to`, but holds the first body up midway: reports it, and waits until the
/// sender is dropped.
fn holding(to: SocketAddr) -> (Server, Receiver<()>, Sender<()>) {
    let ((reached, midway_reached), (release, released)) = (channel(), channel());
    let released = Mutex::new(released);
    let server = midway(to, move || {
        reached.send(()).unwrap();
        let _: Result<(), _> = released.lock().unwrap().recv();
    });
    (server, midway_reached, release)
}

/// Returns whether the digest of the stored file was compared.
fn is_verified(ended: &Ended) -> bool {
    ended.done()["digest"].as_str().is_some_and(|digest| digest.starts_with("blake3:"))
}

/// Returns the bytes that the connections of a run have moved.
fn moved(ended: &Ended) -> u64 {
    ended.events("progress").last().unwrap()["received"].as_u64().unwrap()
}

fn requests_of(server: &Server, wanted: &str) -> Vec<HttpRequest> {
    let mut requests = server.requests();
    requests.retain(|request| method(request) == wanted);
    requests
}
