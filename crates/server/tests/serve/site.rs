//! A directory, a server for it on its own runtime, and a bare client.

use std::fs::{File, FileTimes};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use longhaul_server::{Config, Server, ServerOutcome, Stopper, Telemetry};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::tls;

/// A running server; it ends when dropped.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    /// Files that are not served.
    pub(crate) beside: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) stopper: Stopper,
    thread: Option<JoinHandle<ServerOutcome>>,
}

impl Site {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::observed(change, None)
    }

    /// Starts a server with TLS, and returns the file of its certificate.
    pub(crate) fn encrypted(change: impl FnOnce(&mut Config)) -> (Self, String) {
        let beside = tempfile::tempdir().unwrap();
        let files = tls::files(beside.path());
        let cert = files.cert.to_str().unwrap().to_owned();
        let (dir, mut config) = served();
        config.tls = Some(files);
        change(&mut config);
        (Self::run(dir, beside, config, None), cert)
    }

    pub(crate) fn observed(change: impl FnOnce(&mut Config), telemetry: Option<Telemetry>) -> Self {
        let (dir, mut config) = served();
        change(&mut config);
        Self::run(dir, tempfile::tempdir().unwrap(), config, telemetry)
    }

    fn run(dir: TempDir, beside: TempDir, config: Config, telemetry: Option<Telemetry>) -> Self {
        let mut server = Server::bind(config).unwrap();
        let (address, stopper) = (server.addresses()[0], server.stopper());
        let metrics = server.metrics_address();
        telemetry.into_iter().for_each(|telemetry| server.observe(telemetry));
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .max_blocking_threads(128)
                .build()
                .unwrap();
            runtime.block_on(server.run()).unwrap()
        });
        Self { dir, beside, address, metrics, stopper, thread: Some(thread) }
    }

    /// Writes a file as it is an hour after it was written: its entity tag is strong.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        let hour_ago = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(3600));
        File::options().write(true).open(&path).unwrap().set_times(hour_ago).unwrap();
        path
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        stream
    }

    /// Connects as another client than [`Self::connect`] is.
    pub(crate) fn connect_from_another(&self) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        socket.into()
    }

    /// Requests a file and reads the first byte of the reply, which the server cannot complete yet
    /// if the file is large.
    pub(crate) fn begin(&self, target: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        stream
    }

    /// Sends raw text, closes the sending side and returns everything that comes back.
    pub(crate) fn raw(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Requests one target with extra header lines over HTTP/1.1 and closes.
    pub(crate) fn ask(&self, method: &str, target: &str, lines: &[&str]) -> Answer {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{lines}\r\n");
        let (mut stream, mut reply) = (self.connect(), Vec::new());
        stream.write_all(head.as_bytes()).unwrap();
        stream.read_to_end(&mut reply).unwrap();
        Answer::read(&String::from_utf8_lossy(&reply))
    }

    pub(crate) fn get(&self, target: &str, lines: &[&str]) -> Answer {
        self.ask("GET", target, lines)
    }

    pub(crate) fn ended(mut self) -> ServerOutcome {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stopper.end();
        if let Some(thread) = self.thread.take() {
            // A panic there is reported by its own message.
            let _ = thread.join();
        }
    }
}

/// Creates a directory to serve and the default settings for it.
fn served() -> (TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path(), "127.0.0.1:0".parse().unwrap());
    (dir, config)
}

#[track_caller]
pub(crate) fn wait_for(happened: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(40);
    while !happened() {
        assert!(Instant::now() < until, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Says why a test ends early, which is a failure under CI.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("skipped: {why}");
}

/// Runs curl, silent; returns its exit code and output. `None`, with a word why, where it is
/// missing.
pub(crate) fn curl(args: &[&str]) -> Option<(i32, Vec<u8>)> {
    match Command::new("curl").arg("-sS").args(args).output() {
        Ok(output) => Some((output.status.code().unwrap(), output.stdout)),
        Err(error) => {
            skipped(&format!("curl cannot be run: {error}"));
            None
        }
    }
}

/// Makes bytes that do not repeat and are the same in every run.
pub(crate) fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
