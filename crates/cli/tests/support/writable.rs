//! `longhaul serve --writable`, which can be killed and restarted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::tls::certificates;

/// A server that accepts uploads into `files/` with the token.
pub(crate) struct Writable {
    child: Child,
    dir: TempDir,
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

    /// Starts a server with HTTPS.
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
            fs::write(dir.path().join(name), content).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        if scheme == "https" {
            certificates(dir.path());
        }
        let (child, address) = run(dir.path(), "127.0.0.1:0", options);
        Self { child, dir, address, scheme }
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
        let port = self.address.rsplit(':').next().unwrap();
        format!("{}://{host}:{port}{path}", self.scheme)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    /// Returns the names of the stored files.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.path("")).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Restarts the server at its old address.
    pub(crate) fn restart(&mut self) {
        let (child, address) = run(self.dir.path(), &self.address, &[]);
        assert_eq!(address, self.address);
        self.child = child;
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(dir: &Path, listen: &str, options: &[&str]) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.current_dir(dir).args(["serve", "files", "--writable", "--listen", listen]);
    let tokens: &[&str] = if options.contains(&"--tokens") { &[] } else { &["--token", "token"] };
    let mut child =
        command.args(tokens).args(options).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = log.find(|line| line.starts_with("serving ")).unwrap();
    // Drains the log: a full pipe would cost log lines.
    std::thread::spawn(move || log.for_each(drop));
    let address = line.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    (child, address)
}
