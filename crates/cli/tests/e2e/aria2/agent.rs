//! An agent in its own directories, and a server with one file; both are killed on drop.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const BIN: &str = env!("CARGO_BIN_EXE_longhaul");

/// A process that is killed on drop.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program; returns it and the result of `find` for the first line of output that has one.
fn start<T>(command: &mut Command, find: impl Fn(&str) -> Option<T>) -> (KilledOnDrop, T) {
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
    let child = KilledOnDrop(command.spawn().unwrap());
    // `Command` holds the write end of the pipe.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut lines, mut seen) = (BufReader::new(reader).lines(), Vec::new());
    let found = loop {
        let line = lines.next().unwrap_or_else(|| panic!("the program ended: {seen:?}")).unwrap();
        match find(&line) {
            Some(found) => break found,
            None => seen.push(line),
        }
    };
    // Drains the pipe: a full one would block the program.
    std::thread::spawn(move || lines.for_each(drop));
    (child, found)
}

/// An agent.
pub(crate) struct Agent {
    _process: KilledOnDrop,
    directory: TempDir,
    port: u16,
    token: String,
}

impl Agent {
    pub(crate) fn start(args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(BIN);
        command.args(["agent", "--foreground", "--listen", "127.0.0.1:0"]).args(args);
        command.env("HOME", directory.path()).env("NO_PROXY", "*");
        for name in ["RUNTIME_DIR", "STATE_HOME", "CONFIG_HOME", "CACHE_HOME", "DOWNLOAD_DIR"] {
            let place = directory.path().join(name);
            fs::create_dir(&place).unwrap();
            command.env(format!("XDG_{name}"), place);
        }
        let (process, port) = start(&mut command, |line| {
            let (_, rest) = line.split_once("http://127.0.0.1:")?;
            rest.split('/').next()?.parse().ok()
        });
        let token =
            fs::read_to_string(directory.path().join("STATE_HOME/longhaul/agent/agent.token")).unwrap();
        let token = token.trim().to_owned();
        Self { _process: process, directory, port, token }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Posts JSON; returns the whole response as text.
    pub(crate) fn post(&self, path: &str, host: &str, origin: Option<&str>, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// `longhaul serve` with one file.
pub(crate) struct Server {
    _process: KilledOnDrop,
    _directory: TempDir,
    address: String,
}

impl Server {
    pub(crate) fn of(name: &str, content: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(name), content).unwrap();
        let mut command = Command::new(BIN);
        command.arg("serve").arg(directory.path()).args(["--listen", "127.0.0.1:0"]);
        let (process, address) = start(&mut command, |line| {
            let (_, rest) = line.split_once("127.0.0.1:")?;
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            (!port.is_empty() && port != "0").then(|| format!("127.0.0.1:{port}"))
        });
        Self { _process: process, _directory: directory, address }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }
}
