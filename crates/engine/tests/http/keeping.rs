//! Connections kept for the next request of any job.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_engine::source::http::{Client, ClientConfig, Credentials, ErrorKind, HttpError};
use rustls::{HandshakeKind, ServerConnection, Stream};
use tempfile::TempDir;

use crate::support::{Peer, Script, client, open, open_error, quick, read_all};
use crate::tls::{server_config, trusting};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Runs `play` for each connection on a separate thread; returns the URL, and the number of connections.
fn serve(play: impl Fn(usize, &mut Peer) + Send + Sync + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let (play, counted) = (Arc::new(play), Arc::clone(&connections));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (play, number) = (Arc::clone(&play), counted.fetch_add(1, Ordering::SeqCst));
            std::thread::spawn(move || play(number, &mut Peer::new(stream.unwrap(), mpsc::channel().0)));
        }
    });
    (url, connections)
}

/// Answers every request of every connection with `answer`.
fn always(answer: &'static [u8]) -> (String, Arc<AtomicUsize>) {
    serve(move |_, peer| {
        while !peer.read_request().is_empty() {
            peer.send(answer);
        }
    })
}

/// Fetches `url` and returns the connection to the client.
fn fetch(client: &Client, url: &str) -> Result<(), HttpError> {
    let mut opened = open(client, url)?;
    assert_eq!(read_all(&mut opened.connection, 64)?, b"ok");
    client.keep(opened.connection);
    Ok(())
}

#[test]
fn small_files_need_only_as_many_connections_as_concurrent_fetches() {
    const AT_ONCE: usize = 8;
    let (url, connections) = always(OK);
    let client = client();
    // Compiles only because a client can be shared.
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| (0..125).for_each(|file| fetch(&client, &format!("{url}{file}")).unwrap()));
        }
    });
    assert!(connections.load(Ordering::SeqCst) <= AT_ONCE);
}

#[test]
fn connections_to_a_server_that_redirects_elsewhere_are_kept_too() {
    let (to, _) = always(OK);
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    let (url, connections) = always(answer.leak().as_bytes());
    let client = client();
    (0..5).for_each(|_| fetch(&client, &url).unwrap());
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn kept_connection_closed_by_the_server_is_not_used() {
    let (url, connections) = serve(|_, peer| {
        peer.read_request();
        peer.send(OK);
    });
    let client = client();
    for expected in [1, 2, 3] {
        fetch(&client, &url).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(connections.load(Ordering::SeqCst), expected);
    }
}

#[test]
fn request_lost_on_a_kept_connection_is_retried_on_a_new_one() {
    for mends in [true, false] {
        let (url, connections) = serve(move |number, peer| {
            peer.read_request();
            if number == 0 || mends {
                peer.send(OK);
                // The server's timeout has passed when the request arrives.
                peer.read_request();
            }
        });
        let client = client();
        fetch(&client, &url).unwrap();
        match fetch(&client, &url) {
            Ok(()) => assert!(mends),
            Err(error) => assert!(!mends && error.kind() == ErrorKind::Io, "{error}"),
        }
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn truncated_answer_on_a_kept_connection_is_an_error() {
    let (url, connections) = serve(|_, peer| {
        peer.read_request();
        peer.send(OK);
        peer.read_request();
        peer.send(b"HTTP/1.1 2");
    });
    let client = client();
    fetch(&client, &url).unwrap();
    assert_eq!(open_error(&client, &url).kind(), ErrorKind::Io);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn connection_is_kept_only_after_its_answer_was_read_completely() {
    let (url, connections) = always(OK);
    let client = client();
    let opened = open(&client, &url).unwrap();
    client.keep(opened.connection);
    fetch(&client, &url).unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn keep_alive_timeout_of_the_server_is_honoured() {
    for (timeout, expected) in [("1", 2), ("5, max=9", 1), ("nonsense", 1)] {
        let answer =
            format!("HTTP/1.1 200 OK\r\nKeep-Alive: timeout={timeout}\r\nContent-Length: 2\r\n\r\nok");
        let (url, connections) = always(answer.leak().as_bytes());
        let client = client();
        fetch(&client, &url).unwrap();
        fetch(&client, &url).unwrap();
        assert_eq!(connections.load(Ordering::SeqCst), expected, "{timeout}");
    }
}

#[test]
fn clients_share_connections_with_equal_socket_options_but_not_headers() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requests);
    let (url, connections) = serve(move |_, peer| {
        loop {
            let request = peer.read_request();
            if request.is_empty() {
                return;
            }
            log.lock().unwrap().push(request);
            peer.send(OK);
        }
    });
    let secret = ClientConfig { credentials: Some(Credentials::Bearer("secret".into())), ..quick() };
    let first = Client::new(secret).unwrap();
    fetch(&first, &url).unwrap();
    let second = first.with_config(quick()).unwrap();
    fetch(&second, &format!("{url}other")).unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let requests = requests.lock().unwrap();
    assert!(requests[0].starts_with("GET / ") && requests[0].contains("secret"));
    assert!(requests[1].starts_with("GET /other ") && !requests[1].contains("secret"));
    drop(requests);

    for config in [
        ClientConfig { recv_buffer: Some(Bytes::mib(1)), ..quick() },
        ClientConfig { congestion: Some("reno".into()), ..quick() },
    ] {
        let before = connections.load(Ordering::SeqCst);
        fetch(&first.with_config(config).unwrap(), &url).unwrap();
        assert_eq!(connections.load(Ordering::SeqCst), before + 1);
    }
}

#[test]
fn tls_sessions_are_resumed_by_every_client_that_shares_them() {
    let dir = TempDir::new().unwrap();
    let (config, ca) = server_config(&dir);
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&kinds);
    let script = Script::new(move |_, peer| {
        let mut session = ServerConnection::new(config.clone()).unwrap();
        let mut stream = Stream::new(&mut session, &mut peer.stream);
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        log.lock().unwrap().push(stream.conn.handshake_kind());
        let _ = std::io::Write::write_all(&mut stream, OK);
    });
    let url = format!("https://localhost:{}/", script.address.port());
    let first = trusting(&ca);
    let second = first.with_config(ClientConfig { ca_file: Some(ca), ..quick() }).unwrap();
    for client in [&first, &second] {
        assert_eq!(read_all(&mut open(client, &url).unwrap().connection, 9).unwrap(), b"ok");
    }
    let kinds = kinds.lock().unwrap();
    assert_eq!(*kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
}
