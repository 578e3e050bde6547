use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use longhaul_core::failure::FailureKind;

use super::*;
use crate::connect::Deadline;
use crate::connect::Received;

const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn client() -> Client {
    Client::new(ClientConfig::default()).unwrap()
}

/// Answers the first request of each connection, and keeps all connections open.
fn serve(listener: TcpListener) {
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(EMPTY);
            open.push(stream);
        }
    });
}

#[test]
fn kept_connection_to_an_avoided_address_is_used_only_without_alternatives() {
    let one = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpListener::bind(("127.0.0.2", one.local_addr().unwrap().port())).unwrap();
    let addresses = [&one, &other].map(|listener| listener.local_addr().unwrap());
    [one, other].into_iter().for_each(serve);
    let (client, cancel) = (client(), Cancel::new());
    let mut target = client.target(&"http://two.test/".parse().unwrap()).unwrap();
    target.addresses.set(addresses.to_vec());
    let mut peers = Vec::new();
    for _ in 0..4 {
        let mut connection = client.connect(&mut target, &cancel).unwrap();
        let peer = connection.peer();
        if !peers.contains(&peer) {
            connection.send_get(None).unwrap();
            connection.read_head().unwrap();
            assert_eq!(connection.read_body(&mut [0]).unwrap(), Received::End { clean: true });
        }
        target.addresses.avoid(peer);
        peers.push(peer);
        client.keep(connection);
    }
    let [one, other] = addresses;
    assert_eq!(peers[..2], [one, other], "the avoided address is not used");
    assert!(client.connect(&mut target, &cancel).is_ok(), "there is no other");
}

/// Listens; returns the address, and each accepted connection.
fn accepting() -> (Url, std::sync::mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, accepted) = std::sync::mpsc::channel();
    std::thread::spawn(move || listener.incoming().flatten().all(|stream| sender.send(stream).is_ok()));
    (url, accepted)
}

#[test]
fn early_connection_closed_by_the_server_is_replaced() {
    let (url, accepted) = accepting();
    let client = Arc::new(client());
    let (holder, held) = (Arc::clone(&client), url.clone());
    std::thread::spawn(move || holder.hold_early(&held).unwrap());
    let server = accepted.recv().unwrap();
    std::thread::spawn(move || {
        // The request has arrived; the connection ends instead of an answer.
        let _ = (&server).read(&mut [0; 1024]);
        drop(server);
        let mut second = accepted.recv().unwrap();
        let _ = second.read(&mut [0; 1024]);
        second.write_all(EMPTY).unwrap();
    });
    assert_eq!(client.open(&url, None, &Cancel::new()).unwrap().head.status(), 200);
}

#[test]
fn early_connection_with_a_hanging_handshake_is_dropped() {
    let (mut url, accepted) = accepting();
    url.set_scheme("https").unwrap();
    let client = client();
    let start = std::time::Instant::now();
    client.hold_early(&url).unwrap();
    let _silent = accepted.recv().unwrap();
    let (took, timeout) = (start.elapsed(), client.config.timeouts.connect);
    assert!(took < std::time::Duration::from_secs(10).min(timeout), "{took:?} of {timeout:?}");
}

#[test]
fn handshakes_in_progress_are_awaited_until_they_fail() {
    let (early, cancel) = (Arc::new(EarlyConnections::default()), Cancel::new());
    let client = client();
    let (key, _) = client.key(&client.target(&"http://h.test/".parse().unwrap()).unwrap()).unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    let has_failed = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            early.hold(&key, |_, _| {
                begun.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(100));
                has_failed.store(true, std::sync::atomic::Ordering::SeqCst);
                None
            });
        });
        begins.recv().unwrap();
        let tick = std::time::Duration::from_millis(10);
        let deadline = Deadline::new(&cancel, std::time::Duration::from_secs(60));
        assert!(early.take(&key, |_| true, &deadline, tick).is_none());
        assert!(has_failed.load(std::sync::atomic::Ordering::SeqCst) && !deadline.left().is_zero());
    });
}

#[test]
fn clients_of_one_user_share_cookies_and_headers_of_the_transfer_are_refused() {
    let client = client();
    let config = |header: &str| {
        let mut config = ClientConfig::default();
        config.requests.headers.push(header.parse().unwrap());
        config
    };
    let with = |header: &str, recv_buffer| {
        let config = ClientConfig { recv_buffer, ..config(header) };
        Arc::ptr_eq(&client.with_config(config).unwrap().cookies, &client.cookies)
    };
    assert!(with("Accept: text/html", Some(Bytes::mib(1))) && !with("X-Api-Key: a", None));
    for header in ["Range: bytes=0-1", "expect: 100-continue", "Proxy-Authorization: x"] {
        let error = Client::new(config(header)).err().unwrap();
        assert_eq!(error.kind(), FailureKind::Usage, "the transfer sets it: {error}");
    }
}
