//! Scripted servers, an nginx run by the test, and certificates.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use longhaul_core::proto::http::RangeRequest;
use longhaul_core::ranges::ByteRange;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{
    Client, ClientConfig, Connection, HttpError, OpenedUrl, Read as BodyRead, Timeouts,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
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

pub(crate) fn range(start: u64, end: u64) -> RangeRequest {
    RangeRequest::of(ByteRange::new(start, end)).unwrap()
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

/// Fetches a URL and its whole body.
pub(crate) fn body(client: &Client, url: &str) -> Vec<u8> {
    read_all(&mut open(client, url).unwrap().connection, 1 << 16).unwrap()
}

/// Sends a further request; returns the status and the body of the answer.
pub(crate) fn next(connection: &mut Connection, range: Option<&RangeRequest>) -> (u16, Vec<u8>) {
    connection.send_get(range).unwrap();
    let status = connection.read_head().unwrap().status();
    (status, read_all(connection, 3).unwrap())
}

/// Reads the current body to its end, through a buffer of `size` bytes.
pub(crate) fn read_all(connection: &mut Connection, size: usize) -> Result<Vec<u8>, HttpError> {
    let (mut body, mut buffer) = (Vec::new(), vec![0; size]);
    let started = Instant::now();
    loop {
        match connection.read_body(&mut buffer)? {
            BodyRead::Data(n) => body.extend_from_slice(&buffer[..n]),
            BodyRead::Idle => assert!(started.elapsed() < Duration::from_secs(40), "the body hangs"),
            BodyRead::End => return Ok(body),
        }
    }
}

/// A server whose connections are handled by `handle`, one after the other.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    /// The heads of the requests, as read by `read_request`.
    pub(crate) requests: Receiver<String>,
}

impl Script {
    /// Handles one connection after the other; `handle` receives the connection's number.
    pub(crate) fn new(handle: impl Fn(usize, &mut Peer) + Send + 'static) -> Self {
        Self::at("127.0.0.1:0", handle)
    }

    pub(crate) fn at(address: &str, handle: impl Fn(usize, &mut Peer) + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = channel();
        // Ends with the test's process; a test needs no orderly shutdown.
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut peer = Peer::new(stream.unwrap(), sender.clone());
                handle(number, &mut peer);
            }
        });
        Self { address, requests }
    }

    /// Answers every request of a connection, until the client closes it, with what `answer` makes of the target.
    pub(crate) fn replying(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        Self::new(move |_, peer| {
            loop {
                let request = peer.read_request();
                if request.is_empty() {
                    return;
                }
                peer.send(answer(Peer::target(&request)).as_bytes());
            }
        })
    }

    /// Answers every connection's first request with `answer`, and closes.
    pub(crate) fn answering(answer: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self::new(move |_, peer| {
            peer.read_request();
            peer.send(answer.as_ref());
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// The server's end of a scripted connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    requests: std::sync::mpsc::Sender<String>,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream, requests: std::sync::mpsc::Sender<String>) -> Self {
        Self { stream, requests }
    }

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

    /// Returns the target in the first line of a request's head.
    pub(crate) fn target(request: &str) -> &str {
        request.split(' ').nth(1).unwrap_or_default()
    }
}

/// Bytes without repetition: each group of eight is a distinct number.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0u64..).flat_map(u64::to_be_bytes).take(len).collect()
}

/// A certificate authority of one test, and a server certificate for localhost.
pub(crate) struct Certificates {
    pub(crate) ca_pem: String,
    pub(crate) server_pem: String,
    pub(crate) key: KeyPair,
}

pub(crate) fn certificates() -> Certificates {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let server = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    Certificates { ca_pem, server_pem: server.pem(), key }
}

/// A real nginx as a child process, with its own directory and ports.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    pub(crate) tls_port: u16,
}

impl Nginx {
    /// Starts nginx; `None`, with a printed reason, if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
            .into_iter()
            .find(|p| Path::new(p).exists());
        let Some(program) = program else {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "nginx is not installed");
            println!("skipped: nginx is not installed");
            return None;
        };
        let dir = TempDir::new().unwrap();
        let (port, tls_port) = (free_port(), free_port());
        let certificates = certificates();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        fs::create_dir(dir.path().join("files")).unwrap();
        write("ca.pem", &certificates.ca_pem);
        write("server.pem", &certificates.server_pem);
        write("server.key", &certificates.key.serialize_pem());
        write("users", "ann:{PLAIN}secret\n");
        write("nginx.conf", &config(dir.path(), port, tls_port));
        let child = Command::new(program)
            .arg("-p")
            .arg(dir.path())
            .arg("-c")
            .arg(dir.path().join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self { child, dir, port, tls_port };
        let deadline = Instant::now() + Duration::from_secs(40);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "nginx does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(nginx)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join("files").join(name), bytes).unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn config(dir: &Path, port: u16, tls_port: u16) -> String {
    let dir = dir.display();
    format!(
        "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
  uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
  server {{
    listen 127.0.0.1:{port};
    listen 127.0.0.1:{tls_port} ssl;
    ssl_certificate {dir}/server.pem; ssl_certificate_key {dir}/server.key;
    root {dir}/files;
    # Rewriting makes the length unknown, so nginx sends chunks.
    location /chunked/ {{ alias {dir}/files/; sub_filter_types *; sub_filter 'no such text' ''; }}
    location /private/ {{ alias {dir}/files/; auth_basic 'a, \"b\"'; auth_basic_user_file {dir}/users; }}
    location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
    location /hidden/ {{ return 302 /private/data; }}
  }}
}}
"
    )
}
