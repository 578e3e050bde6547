//! `longhaul serve --writable`, which can be killed and restarted.

use std::fs;
use std::io::{copy, sink};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use socket2::Socket;
use tempfile::TempDir;

use super::http::reserved_port;
use super::running::Running;
use super::tls::certificates;
use super::{names, same, write_secret};

/// A server that accepts uploads into `files/` with the token.
pub(crate) struct Writable {
    server: Running,
    dir: TempDir,
    _reserved: Socket,
    address: String,
    scheme: &'static str,
}

impl Writable {
    pub(crate) fn start() -> Self {
        Self::with(&[], "http")
    }

    /// Starts a server whose token may write files, but not replace them.
    pub(crate) fn write_only() -> Self {
        Self::with(&["--tokens", "tokens"], "http")
    }

    pub(crate) fn encrypted() -> Self {
        Self::with(&["--tls-cert", "server.pem", "--tls-key", "server.key"], "https")
    }

    /// Starts a server that also accepts and serves names that begin with a dot.
    pub(crate) fn hidden() -> Self {
        Self::with(&["--hidden"], "http")
    }

    fn with(options: &[&str], scheme: &'static str) -> Self {
        // On the disk, not in a tmpfs: the writers must run on a real file system.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(dir.path().join("files")).unwrap();
        let write_only = "[[token]]\nname = \"a\"\ntoken = \"sesame\"\nrights = [\"write\"]\n";
        for (name, content) in [("token", "sesame"), ("tokens", write_only)] {
            write_secret(dir.path().join(name), content);
        }
        if scheme == "https" {
            certificates(dir.path());
        }
        let (reserved, address) = reserved_port();
        let (server, address) = run(dir.path(), &address.to_string(), options);
        Self { server, dir, _reserved: reserved, address, scheme }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address.parse().unwrap()
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}{path}", self.scheme, self.address().port())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.path(""))
    }

    /// Fails unless `f` has these bytes and is the only file; removes it for the next upload.
    #[track_caller]
    pub(crate) fn hands_over(&self, bytes: &[u8]) {
        same(self.path("f"), bytes);
        assert_eq!(self.names(), ["f"]);
        fs::remove_file(self.path("f")).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.server.0.kill().unwrap();
        self.server.0.wait().unwrap();
    }

    /// Restarts the server at its old address.
    pub(crate) fn restart(&mut self) {
        self.server = run(self.dir.path(), &self.address, &[]).0;
    }
}

fn run(dir: &Path, listen: &str, options: &[&str]) -> (Running, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.current_dir(dir).args(["serve", "files", "--writable", "--listen", listen]);
    let tokens: &[&str] = if options.contains(&"--tokens") { &[] } else { &["--token", "token"] };
    let (mut server, address) = Running::server(command.args(tokens).args(options));
    let mut log = server.0.stderr.take().unwrap();
    // Drains the log: a full pipe would cost log lines.
    std::thread::spawn(move || copy(&mut log, &mut sink()));
    (server, address)
}
