//! A client that takes all it can keeps no other client out.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::{Serve, serve};

/// Descriptors for everything but the connections of the attack.
const SPARE: u64 = 200;
const MOST: u64 = 7_000;
/// Each connection of the attack takes so much a second.
const BYTES_PER_SECOND: usize = 1_000;

/// The attack replaces so many of its connections a second that were closed.
const CONNECTS_PER_SECOND: usize = 1_000;

/// Gets the large file; returns when the first byte came, and the bytes per second.
fn goodput(address: SocketAddr) -> (Duration, f64) {
    let started = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /large HTTP/1.0\r\nLonghaul-Pace: 160000000\r\n\r\n").unwrap();
    stream.read_exact(&mut [0]).expect("the server lets another client in");
    let admitted = started.elapsed();
    let bytes = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert!(bytes > 39 << 20, "only {bytes} bytes came");
    (admitted, bytes as f64 / started.elapsed().as_secs_f64())
}

/// Connects from the attacker's address, with a small receive buffer.
fn connect(address: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(&"127.0.0.2:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect_timeout(&address.into(), Duration::from_secs(1)).ok()?;
    socket.set_nonblocking(true).unwrap();
    Some(socket.into())
}

/// Keeps as many slow connections open as it can; a third of them never completes its request's head.
fn attack(address: SocketAddr, connections: usize, ready: &AtomicBool, over: &AtomicBool) {
    let (mut open, mut number) = (Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        let round = Instant::now();
        for _ in open.len()..connections.min(open.len() + CONNECTS_PER_SECOND) {
            let Some(mut stream) = connect(address) else { break };
            number += 1;
            let end = if number % 3 == 0 { "" } else { "\r\n" };
            let request = format!("GET /large HTTP/1.1\r\nHost: h\r\n{end}");
            if stream.write_all(request.as_bytes()).is_ok() {
                open.push(stream);
            }
        }
        open.retain_mut(|stream| match stream.read(&mut [0; BYTES_PER_SECOND]) {
            Ok(length) => length > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        if number >= connections {
            ready.store(true, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_secs(1).saturating_sub(round.elapsed()));
    }
}

/// Held while a server is attacked: each attack takes most of two cores.
static ATTACKS: Mutex<()> = Mutex::new(());

fn survives(args: &[&str]) {
    let _alone = ATTACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let connections = limit.maximum.map_or(MOST, |most| most.saturating_sub(SPARE).min(MOST)) as usize;
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("large")).unwrap().set_len(40 << 20).unwrap();
    let server = Serve::start(serve(dir.path(), args));
    let undisturbed = goodput(server.address).1;
    let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|threads| {
        threads.spawn(|| attack(server.address, connections, &ready, &over));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ready.load(Ordering::Relaxed) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(100));
        }
        let disturbed = std::panic::catch_unwind(|| goodput(server.address));
        over.store(true, Ordering::Relaxed);
        let (admitted, disturbed) = disturbed.unwrap();
        println!(
            "{connections} slow connections: admitted after {admitted:?}, {:.2} of {undisturbed:.0} B/s",
            disturbed / undisturbed
        );
        assert!(ready.load(Ordering::Relaxed), "the attack did not reach its size");
        assert!(admitted < Duration::from_secs(1), "admitted after {admitted:?}");
        assert!(disturbed >= 0.9 * undisturbed, "{disturbed:.0} of {undisturbed:.0} bytes a second");
    });
}

#[test]
fn slow_clients_of_one_address_are_capped() {
    survives(&["--connections", "6000"]);
}

#[test]
fn slowest_replies_of_the_largest_holder_make_room() {
    survives(&["--connections", "2000", "--connections-per-client", "2000"]);
}
