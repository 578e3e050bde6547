//! Clients with short ticks, and scripted servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use longhaul_engine::cancel::Cancel;
use longhaul_engine::connect::Received;
use longhaul_engine::source::http::{
    Client, ClientConfig, Connection, HttpError, OpenedUrl, Timeouts, TlsConfig,
};
use rustls::{ServerConfig, ServerConnection};
use url::Url;

pub(crate) fn client() -> Client {
    Client::new(quick()).unwrap()
}

/// Settings with short ticks.
pub(crate) fn quick() -> ClientConfig {
    let timeouts = Timeouts {
        connect: Duration::from_secs(20),
        head: Duration::from_secs(20),
        tick: Duration::from_millis(50),
    };
    ClientConfig { timeouts, ..ClientConfig::default() }
}

pub(crate) fn by_authority(ca: &Path) -> TlsConfig {
    TlsConfig { ca_file: Some(ca.to_owned()), ..TlsConfig::default() }
}

pub(crate) fn open(client: &Client, url: &str) -> Result<OpenedUrl, HttpError> {
    client.open(&url.parse::<Url>().unwrap(), None, &Cancel::new())
}

pub(crate) fn open_error(client: &Client, url: &str) -> HttpError {
    match open(client, url) {
        Ok(opened) => panic!("opened, with {}", opened.head.status()),
        Err(error) => error,
    }
}

/// Reads the current body to its end, through a buffer of `size` bytes.
pub(crate) fn read_all(connection: &mut Connection, size: usize) -> Result<Vec<u8>, HttpError> {
    let (mut body, mut buffer) = (Vec::new(), vec![0; size]);
    let started = Instant::now();
    loop {
        match connection.read_body(&mut buffer)? {
            Received::Data(n) => body.extend_from_slice(&buffer[..n]),
            Received::Idle => assert!(started.elapsed() < Duration::from_secs(40), "the body hangs"),
            Received::End { .. } => return Ok(body),
        }
    }
}

/// A server whose connections are handled by a function, each on a separate thread.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    /// The heads of the requests, as read by `read_request`.
    pub(crate) requests: Receiver<String>,
    connections: Arc<AtomicUsize>,
}

impl Script {
    /// Handles connections; `handle` receives the connection's number.
    pub(crate) fn new(handle: impl Fn(usize, &mut Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let (handle, counted) = (Arc::new(handle), Arc::clone(&connections));
        // Ends with the test's process; a test needs no orderly shutdown.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let mut peer = Peer { stream: stream.unwrap(), requests: sender.clone() };
                let handle = Arc::clone(&handle);
                std::thread::spawn(move || handle(number, &mut peer));
            }
        });
        Self { address, requests, connections }
    }

    /// Answers every request of a connection, until the client closes it, with what `answer` makes
    /// of the request.
    pub(crate) fn replying<A: AsRef<[u8]>>(answer: impl Fn(&str) -> A + Send + Sync + 'static) -> Self {
        Self::new(move |_, peer| {
            loop {
                let request = peer.read_request();
                if request.is_empty() {
                    return;
                }
                peer.send(answer(&request).as_ref());
            }
        })
    }

    /// Handles each connection with a new session of TLS.
    pub(crate) fn encrypted(
        config: Arc<ServerConfig>,
        handle: impl Fn(&mut ServerConnection, &mut Peer) + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |_, peer| handle(&mut ServerConnection::new(Arc::clone(&config)).unwrap(), peer))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn tls_url(&self, host: &str) -> String {
        format!("https://{host}:{}/", self.address.port())
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The server's end of a scripted connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    requests: Sender<String>,
}

impl Peer {
    /// Reads one request's head; empty if the client has closed.
    pub(crate) fn read_request(&mut self) -> String {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && matches!(self.stream.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let _ = self.requests.send(head.clone());
        head
    }

    /// Sends, ignoring a closed client.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }
}
