//! What serves on a lab's server.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longhaul_core::pace::Pace;
use longhaul_lab::{Host, Lab, NO_CONFIG, Process};

use crate::{globus, nginx};

const PORT: u16 = 80;
/// What lets `longhaul put` and curl write.
pub(crate) const TOKEN: &str = "bench";

/// A server and how it is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchServer {
    /// nginx, as Debian sets it up.
    Nginx,
    /// `longhaul serve` with this `--pace`.
    Serve(Pace),
    /// `longhaul serve` as it is by itself.
    ServeByItself,
    /// `longhaul serve --writable`.
    Writable,
    /// The Globus GridFTP server, for anonymous users.
    Globus,
}

/// Stops with the lab.
#[derive(Debug)]
pub(crate) struct RunningServer {
    process: Process,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl BenchServer {
    /// Starts it and waits until it listens; `record` is what `longhaul serve` records to, each millisecond.
    ///
    /// It serves `dir/www`, and takes files to `dir/copies`.
    ///
    /// # Errors
    /// Fails where it cannot be started or does not listen; its log is in `dir`.
    pub(crate) fn start(
        self,
        lab: &Lab,
        dir: &Path,
        longhaul: &Path,
        record: &Path,
    ) -> Result<RunningServer> {
        let (host, address) = (lab.server(), SocketAddr::from((lab.server().ipv4(), PORT)));
        let mut command = match self {
            Self::Nginx => {
                let mut command = host.command(nginx::find()?);
                command.arg("-p").arg(dir).arg("-c").arg(nginx::configure(dir)?);
                command
            }
            Self::Serve(pace) => {
                let mut command = serve(&host, longhaul, &dir.join("www"));
                command.arg("--pace").arg(pace.header());
                command.args(["--record-interval", "1ms", "--record"]).arg(record);
                command
            }
            Self::ServeByItself => serve(&host, longhaul, &dir.join("www")),
            Self::Writable => {
                let mut command = serve(&host, longhaul, &dir.join("copies"));
                command.args(["--writable", "--allow-cleartext", "--token"]).arg(token_file(dir)?);
                command
            }
            Self::Globus => {
                let mut command = host.command("unshare");
                command.args(globus::words(dir, address)?);
                command
            }
        };
        let log = dir.join("server.log");
        let log_file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        let process = host.spawn(command)?;

        // Without a packet: background traffic counts its time from the first.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !host.listens_on(PORT)? {
            if Instant::now() > deadline {
                bail!("the server does not listen on {address}; its log is {}", log.display());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(RunningServer { process, address })
    }
}

impl RunningServer {
    /// Ends it gently, so that its record is complete.
    ///
    /// # Errors
    /// Fails where it cannot be signalled.
    pub(crate) fn end(mut self) -> Result<()> {
        self.process.terminate()?;
        self.process.wait_for(Duration::from_secs(5))?;
        Ok(())
    }
}

fn serve(host: &Host, longhaul: &Path, directory: &Path) -> Command {
    let mut command = host.command(longhaul);
    command.env(NO_CONFIG, "1");
    command.arg("serve").arg(directory).arg("--listen").arg(format!("{}:{PORT}", host.ipv4()));
    command
}

/// Writes the token that lets clients write, and returns the file.
///
/// # Errors
/// Fails where it cannot be written.
pub(crate) fn token_file(dir: &Path) -> Result<std::path::PathBuf> {
    let file = dir.join("token");
    let failed = || format!("cannot write {}", file.display());
    fs::write(&file, TOKEN).with_context(failed)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).with_context(failed)?;
    Ok(file)
}
