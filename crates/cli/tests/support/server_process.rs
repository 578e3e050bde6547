//! A server as a child with its own process group, and the directory that it serves; and what a
//! test needs of this machine.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// Timeout for the start of a server on a busy machine.
const START: Duration = Duration::from_secs(60);

/// A server and its forked processes; all are killed on drop.
pub(crate) struct ServerProcess(Child);

impl ServerProcess {
    /// Starts `command` and returns the text behind `mark` in the first line of output that
    /// contains it.
    pub(crate) fn announced(mut command: Command, mark: &str) -> (Self, String) {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let server = Self(child);
        let found = lines.find_map(|line| line.split_once(mark).map(|(_, rest)| rest.trim().to_owned()));
        // Drains the output: a full pipe would block the server.
        std::thread::spawn(move || lines.for_each(drop));
        (server, found.unwrap_or_else(|| panic!("{command:?} does not start")))
    }

    /// Starts `command` and waits until `port` accepts connections.
    pub(crate) fn listening(command: Command, port: u16) -> Self {
        Self::ready(command, || TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    /// Starts `command` and waits until it is ready.
    pub(crate) fn ready(mut command: Command, is_ready: impl Fn() -> bool) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let mut server = Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
        let deadline = Instant::now() + START;
        while !is_ready() {
            let ended = server.0.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?} ended: {ended:?}");
            assert!(Instant::now() < deadline, "{command:?} does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Sessions are separate processes, which would outlive the listener.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A server with its directory, which contains `files/`, certificates and the server's log; stopped
/// on drop.
pub(crate) struct FtpSite {
    server: ServerProcess,
    dir: TempDir,
    port: u16,
    /// The URL path of `files/`, with a slash at its end.
    root: String,
}

impl FtpSite {
    pub(super) fn new(server: ServerProcess, dir: TempDir, port: u16, root: String) -> Self {
        Self { server, dir, port, root }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of `name` in `files/`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) {
        write_old(&self.path(name), bytes);
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("ftp://127.0.0.1:{}{}{name}", self.port, self.root)
    }

    pub(crate) fn tls_url(&self, name: &str) -> String {
        format!("ftps://localhost:{}{}{name}", self.port, self.root)
    }

    /// Returns the path of the certificate of the server's issuer.
    pub(crate) fn ca(&self) -> String {
        self.dir.path().join("ca.pem").into_os_string().into_string().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }
}

/// Returns a free port, for servers that cannot report a port chosen by the kernel. The kernel
/// chooses none of these ports before the server listens: they are below its range of 32768 to
/// 60999 (ip_local_port_range, ip(7)).
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time begin at different ports.
    let first = 10_000 + (std::process::id() % 100) as u16 * 200;
    let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Creates a directory with `files/`, writable by servers that drop root.
pub(crate) fn site_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::set_permissions(&files, Permissions::from_mode(0o777)).unwrap();
    dir
}

/// Writes a file with a modification time one hour ago, so that later changes have another time.
pub(crate) fn write_old(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: impl AsRef<Path>, text: &str) {
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// Returns the first existing program; otherwise reports why the test is skipped.
pub(crate) fn installed(paths: &[&'static str]) -> Option<&'static str> {
    let found = paths.iter().find(|path| Path::new(path).exists()).copied();
    if found.is_none() {
        skip(&format!("{} is not installed", paths[0]));
    }
    found
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports that a test needs root, and for what.
pub(crate) fn needs_root(what: &str) -> Option<()> {
    if !is_root() {
        skip(&format!("{what} needs root"));
    }
    is_root().then_some(())
}

/// Prints why a test does not run. Fails under `CI=true`, where every test has what it needs.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "cannot run: {why}");
    println!("skipped: {why}");
}
