//! The servers on a lab's server host.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use longhaul_core::pace::Pace;
use longhaul_lab::{Lab, NO_CONFIG, ServerCommand};

use crate::nginx;

const PORT: u16 = 80;
const GLOBUS: &str = "/usr/sbin/globus-gridftp-server";
/// The write token for `longhaul put` and curl.
pub(crate) const TOKEN: &str = "bench";

/// A server and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchServer {
    /// nginx with Debian's settings.
    Nginx,
    /// `longhaul serve` with this `--pace`.
    Serve(Pace),
    /// `longhaul serve` with default options.
    ServeDefault,
    /// `longhaul serve --writable`.
    Writable,
    /// The Globus GridFTP server, for anonymous users.
    Globus,
}

impl BenchServer {
    /// Starts the server and waits until it listens; `record` is the record of `longhaul serve`, at 1 ms.
    ///
    /// The server reads `dir/www`, and stores uploads in `dir/copies`.
    ///
    /// # Errors
    /// Fails if the server cannot be started or does not listen; its log is in `dir`.
    pub(crate) fn start(
        self,
        lab: &Lab,
        dir: &Path,
        longhaul: &Path,
        record: &Path,
    ) -> Result<ServerCommand> {
        let log = dir.join("server.log");
        let log_file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let words = self.words(dir, longhaul, record, address(lab))?;
        let mut server = ServerCommand::start(&lab.server(), "exec \"$0\" \"$@\"", |shell| {
            shell.args(words).env(NO_CONFIG, "1").stdout(Stdio::null()).stderr(log_file);
            Ok(())
        })?;
        let ready = server.wait_until_listening(PORT, |_| ControlFlow::Continue(()));
        ready.with_context(|| format!("the server's log is {}", log.display()))?;
        Ok(server)
    }

    /// Returns the server's command.
    fn words(self, dir: &Path, longhaul: &Path, record: &Path, address: SocketAddr) -> Result<Vec<OsString>> {
        let serve = |directory: &str, options: &[&OsStr]| {
            let (directory, listen) = (dir.join(directory), OsString::from(address.to_string()));
            let first =
                [longhaul.as_os_str(), "serve".as_ref(), directory.as_ref(), "--listen".as_ref(), &listen];
            first.iter().chain(options).map(OsString::from).collect()
        };
        Ok(match self {
            Self::Nginx => {
                let (program, configuration) = (nginx::find()?, nginx::configure(dir)?);
                vec![program.into(), "-p".into(), dir.into(), "-c".into(), configuration.into()]
            }
            Self::Serve(pace) => {
                let pace = pace.option();
                let record = record.as_os_str();
                let options = ["--pace", &pace, "--record-interval", "1ms", "--record"].map(OsStr::new);
                serve("www", &[&options[..], &[record]].concat())
            }
            Self::ServeDefault => serve("www", &[]),
            Self::Writable => {
                let options = ["--writable", "--allow-cleartext", "--token"].map(OsStr::new);
                serve("copies", &[&options[..], &[token_file(dir)?.as_os_str()]].concat())
            }
            Self::Globus => {
                fs::metadata(GLOBUS).with_context(|| {
                    format!("{GLOBUS} is not installed; `make bench` does that, or scripts/setup.sh test")
                })?;
                let (ip, port) = (address.ip().to_string(), address.port().to_string());
                // Ignores the packaged configuration, which fixes port 2811. Runs as root, which may read every directory, like nginx.
                let users = ["-c", "/dev/null", "-aa", "-anonymous-user", "root", "-allow-root", "-p", &port];
                let addresses = ["-control-interface", &ip, "-data-interface", &ip, "-rp"];
                let words = [&[GLOBUS][..], &users[..], &addresses[..]].concat();
                words.into_iter().map(OsString::from).chain([dir.join("www").into()]).collect()
            }
        })
    }
}

/// Returns the address of a lab's server.
pub(crate) fn address(lab: &Lab) -> SocketAddr {
    SocketAddr::from((lab.server().ipv4(), PORT))
}

/// Writes the write token to a file, and returns its path.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn token_file(dir: &Path) -> Result<std::path::PathBuf> {
    let file = dir.join("token");
    let failed = || format!("cannot write {}", file.display());
    fs::write(&file, TOKEN).with_context(failed)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).with_context(failed)?;
    Ok(file)
}
