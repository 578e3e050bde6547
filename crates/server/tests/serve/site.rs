//! A directory, a server for it on its own runtime, and a bare client.

use std::fs::{File, FileTimes};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use longhaul_server::{Config, Server, ServerOutcome, Stopper, Telemetry};
use tempfile::TempDir;

/// A running server; it ends when dropped.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
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

    pub(crate) fn observed(change: impl FnOnce(&mut Config), telemetry: Option<Telemetry>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path(), "127.0.0.1:0".parse().unwrap());
        change(&mut config);
        Self::run(dir, config, telemetry)
    }

    /// Starts a server of another directory than the site's own.
    pub(crate) fn of(config: Config) -> Self {
        Self::run(tempfile::tempdir().unwrap(), config, None)
    }

    fn run(dir: TempDir, config: Config, telemetry: Option<Telemetry>) -> Self {
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
        Self { dir, address, metrics, stopper, thread: Some(thread) }
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
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
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
        Answer::read(
            &self.raw(&format!("{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{lines}\r\n")),
        )
    }

    pub(crate) fn get(&self, target: &str, lines: &[&str]) -> Answer {
        self.ask("GET", target, lines)
    }

    /// Reads the metrics at their own address.
    pub(crate) fn metrics_page(&self) -> String {
        let mut stream = TcpStream::connect(self.metrics.unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::read(&text).body
    }

    /// Waits for the server's end.
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

/// A reply, taken apart.
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

/// Runs curl, silent; returns its exit code and output. `None`, with a word why, where it is missing.
pub(crate) fn curl(args: &[&str]) -> Option<(i32, Vec<u8>)> {
    match Command::new("curl").arg("-sS").args(args).output() {
        Ok(output) => Some((output.status.code().unwrap(), output.stdout)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "curl is needed: {error}");
            println!("skipped: curl cannot be run: {error}");
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

/// Compares files without printing them.
pub(crate) fn same(a: &Path, b: &Path) -> bool {
    std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
}
