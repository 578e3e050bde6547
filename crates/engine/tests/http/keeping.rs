//! Connections kept for the next request of any job.

use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_engine::source::http::{Client, ClientConfig, Credentials, HttpError};
use parking_lot::Mutex;
use rustls::{HandshakeKind, Stream};
use tempfile::TempDir;

use crate::support::{Script, by_authority, client, open, open_error, quick, read_all};
use crate::tls::{server_config, trusting};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Fetches `url` and returns the connection to the client.
fn fetch(client: &Client, url: &str) -> Result<(), HttpError> {
    let mut opened = open(client, url)?;
    assert_eq!(read_all(&mut opened.connection, 64)?, b"ok");
    client.keep(opened.connection);
    Ok(())
}

#[test]
fn connections_to_a_server_that_redirects_elsewhere_are_kept_too() {
    let elsewhere = Script::replying(|_| OK);
    let location = elsewhere.url("/");
    let server = Script::replying(move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
    });
    let client = client();
    (0..5).for_each(|_| fetch(&client, &server.url("/")).unwrap());
    assert_eq!(server.connections(), 1);
}

#[test]
fn request_lost_on_a_kept_connection_is_retried_on_a_new_one() {
    for mends in [true, false] {
        let server = Script::new(move |number, peer| {
            peer.read_request();
            if number == 0 || mends {
                peer.send(OK.as_bytes());
                // The server's timeout has passed when the request arrives.
                peer.read_request();
            }
        });
        let client = client();
        fetch(&client, &server.url("/")).unwrap();
        match fetch(&client, &server.url("/")) {
            Ok(()) => assert!(mends),
            Err(error) => assert!(!mends && error.is_broken_connection(), "{error}"),
        }
        assert_eq!(server.connections(), 2);
    }
}

#[test]
fn truncated_answer_on_a_kept_connection_is_an_error() {
    let server = Script::new(|_, peer| {
        peer.read_request();
        peer.send(OK.as_bytes());
        peer.read_request();
        peer.send(b"HTTP/1.1 2");
    });
    let client = client();
    fetch(&client, &server.url("/")).unwrap();
    assert!(open_error(&client, &server.url("/")).is_broken_connection());
    assert_eq!(server.connections(), 1);
}

#[test]
fn keep_alive_timeout_of_the_server_is_honoured() {
    for (timeout, expected) in [("1", 2), ("5, max=9", 1), ("nonsense", 1)] {
        let server = Script::replying(move |_| {
            OK.replace("OK\r\n", &format!("OK\r\nKeep-Alive: timeout={timeout}\r\n"))
        });
        let client = client();
        fetch(&client, &server.url("/")).unwrap();
        fetch(&client, &server.url("/")).unwrap();
        assert_eq!(server.connections(), expected, "{timeout}");
    }
}

#[test]
fn clients_share_connections_with_equal_socket_options_but_not_headers() {
    let server = Script::replying(|_| OK);
    let mut secret = quick();
    secret.logins.credentials = Some(Credentials::Bearer("secret".into()));
    let first = Client::new(secret).unwrap();
    fetch(&first, &server.url("/")).unwrap();
    let second = first.with_config(quick()).unwrap();
    fetch(&second, &server.url("/")).unwrap();
    assert_eq!(server.connections(), 1);
    let requests: Vec<_> = server.requests.iter().take(2).collect();
    assert!(requests[0].contains("secret") && !requests[1].contains("secret"), "{requests:?}");

    for config in [
        ClientConfig { recv_buffer: Some(Bytes::mib(1)), ..quick() },
        ClientConfig { congestion: Some("reno".into()), ..quick() },
    ] {
        let before = server.connections();
        fetch(&first.with_config(config).unwrap(), &server.url("/")).unwrap();
        assert_eq!(server.connections(), before + 1);
    }
}

#[test]
fn tls_sessions_are_resumed_by_every_client_that_shares_them() {
    let dir = TempDir::new().unwrap();
    let (config, ca) = server_config(&dir);
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&kinds);
    let server = Script::encrypted(config, move |session, peer| {
        let mut stream = Stream::new(session, &mut peer.stream);
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        log.lock().push(stream.conn.handshake_kind());
        let _ = std::io::Write::write_all(&mut stream, OK.as_bytes());
    });
    let first = trusting(&ca);
    let second = first.with_config(ClientConfig { tls: by_authority(&ca), ..quick() }).unwrap();
    for client in [&first, &second] {
        let mut opened = open(client, &server.tls_url("localhost")).unwrap();
        assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"ok");
    }
    let kinds = kinds.lock();
    assert_eq!(*kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
}
