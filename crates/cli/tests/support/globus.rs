//! The Globus GridFTP server, and its transfer log.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server_process::{FtpSite, ServerProcess, installed, is_root, site_dir};

const PROGRAM: &str = "/usr/sbin/globus-gridftp-server";

/// A Globus server for anonymous users, stopped on drop. Its paths are absolute paths of this
/// machine.
pub(crate) struct Globus(FtpSite);

impl Deref for Globus {
    type Target = FtpSite;

    fn deref(&self) -> &FtpSite {
        &self.0
    }
}

/// A line of the server's transfer log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedTransfer {
    /// RETR, ERET, STOR, ESTO, MLSD …
    pub(crate) kind: String,
    pub(crate) code: u16,
    pub(crate) bytes: u64,
    /// Number of data connections.
    pub(crate) streams: u32,
    /// Their socket buffer size in bytes.
    pub(crate) buffer: u64,
}

impl Globus {
    /// Starts a server; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let anonymous: &[&str] = if is_root() { &["-aa", "-anonymous-user", "nobody"] } else { &["-aa"] };
        Self::run(site_dir(), anonymous, &[])
    }

    /// Starts a server on `dir` with options and environment.
    pub(super) fn run(dir: TempDir, options: &[&str], env: &[(&str, PathBuf)]) -> Option<Self> {
        let mut command = Command::new(installed(&[PROGRAM])?);
        let files = dir.path().join("files");
        // Ignores the packaged configuration, which fixes the port.
        command.args(["-c", "/dev/null", "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]);
        command.arg("-home-dir").arg(&files).arg("-rp").arg(&files);
        command.args(["-log-module", "stdio:buffer=0", "-log-level", "ALL"]);
        command.arg("-l").arg(dir.path().join("server.log")).arg("-Z").arg(dir.path().join("transfers.log"));
        command.args(options).envs(env.iter().map(|(name, value)| (name, value)));
        command.current_dir(dir.path()).stderr(Stdio::null());
        let (server, address) = ServerProcess::announced(command, "listening at ");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in '{address}'"));
        Some(Self(FtpSite::new(server, dir, port, format!("{}/", files.display()))))
    }

    pub(crate) fn transfers(&self) -> Vec<LoggedTransfer> {
        let log = fs::read_to_string(self.dir().join("transfers.log")).unwrap_or_default();
        log.lines().filter_map(logged).collect()
    }

    /// Waits until the log has `n` transfers that `wanted` accepts, and returns them; lines are
    /// written after the reply.
    #[track_caller]
    pub(crate) fn logged(&self, n: usize, wanted: impl Fn(&LoggedTransfer) -> bool) -> Vec<LoggedTransfer> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found: Vec<_> = self.transfers().into_iter().filter(|transfer| wanted(transfer)).collect();
            if found.len() >= n {
                return found;
            }
            assert!(Instant::now() < deadline, "{n} transfers were expected: {:?}", self.transfers());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn logged(line: &str) -> Option<LoggedTransfer> {
    let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Some(LoggedTransfer {
        kind: field("TYPE")?.to_owned(),
        code: field("CODE")?.parse().ok()?,
        bytes: field("NBYTES")?.parse().ok()?,
        streams: field("STREAMS")?.parse().ok()?,
        buffer: field("BUFFER")?.parse().ok()?,
    })
}
