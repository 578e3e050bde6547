//! A server as a child with its own process group, and the directory that it serves.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::program::skip;

/// The longest time that a server may take to start on a busy machine.
const START: Duration = Duration::from_secs(20);

/// A server and the processes that it forked; all are killed when dropped.
pub(crate) struct ServerProcess(Child);

impl ServerProcess {
    /// Starts `command` and returns the rest of the first line of its output that has `mark`.
    pub(crate) fn announced(mut command: Command, mark: &str) -> (Self, String) {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let server = Self(child);
        let found = lines.find_map(|line| line.split_once(mark).map(|(_, rest)| rest.trim().to_owned()));
        // A full pipe would block the server.
        std::thread::spawn(move || lines.for_each(drop));
        (server, found.unwrap_or_else(|| panic!("{command:?} does not start")))
    }

    /// Starts `command` and waits until `port` answers.
    pub(crate) fn listening(mut command: Command, port: u16) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let mut server = Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
        let deadline = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
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
        // Sessions run in processes of their own, which would outlive the listener.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Returns a port that is free now, for servers that cannot report the one that the kernel chose.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Makes a directory with `files/` that a server which gives up root may write to.
pub(crate) fn site_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::set_permissions(&files, Permissions::from_mode(0o777)).unwrap();
    dir
}

/// Writes a file that was modified an hour ago, so that its date differs from that of a later change.
pub(crate) fn write_old(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

/// Returns the first program that exists; says why a test cannot run otherwise.
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

/// Says why a test of a server that changes its user cannot run.
pub(crate) fn needs_root(server: &str) -> Option<()> {
    if !is_root() {
        skip(&format!("{server} needs root"));
    }
    is_root().then_some(())
}
