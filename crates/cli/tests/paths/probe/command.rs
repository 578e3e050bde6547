//! The program, `longhaul serve`, and scripted servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) use crate::support::held_path::{is_held, repeat_until_held};
pub(crate) use crate::support::skip;

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_longhaul");

/// Creates the command with its own home.
pub(crate) fn probe(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(BIN);
    command.arg("probe").args(args).env("HOME", home).env_remove("XDG_STATE_HOME");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Serialises measurements: concurrent ones would distort each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the command; returns its output and duration.
pub(crate) fn run(args: &[&str]) -> (Output, Duration) {
    let home = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let output = probe(home.path(), args).output().unwrap();
    (output, started.elapsed())
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the object that `--json` prints.
pub(crate) fn json(output: &Output) -> Value {
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 1, "{stdout}: {}", text(&output.stderr));
    serde_json::from_str(&stdout).unwrap()
}

/// Returns whether a line reports the missing measurement.
pub(crate) fn misses(report: &Value, words: &str) -> bool {
    report["missing"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains(words))
}

/// `longhaul serve`; killed when dropped.
pub(crate) struct Serve {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Serve {
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(BIN);
        command.arg("serve").arg(dir).args(["--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().unwrap().starts_with("serving ")).unwrap().unwrap();
        let address = line.split("://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
        // Drains the log: a full pipe would block the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Both fail if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Listens, and runs `answer` on a thread for each connection that sends a request; bare handshakes are ignored.
pub(crate) fn scripted(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, mut stream) = (answer.clone(), stream.unwrap());
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut request) {
                    answer(&String::from_utf8_lossy(&request[..length]), &mut stream);
                }
            });
        }
    });
    address
}

/// Writes a response with a body; the client may have closed the connection.
pub(crate) fn reply(stream: &mut TcpStream, head: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}
