//! The servers on a lab's server host, as shell commands.

use std::fs;

use anyhow::{Context, Result};
use longhaul_core::pace::Pace;

use crate::nginx;

/// The port of all servers.
pub(crate) const PORT: u16 = 80;
const GLOBUS: &str = "/usr/sbin/globus-gridftp-server";
/// The write token for `longhaul put` and curl.
pub(crate) const TOKEN: &str = "bench";

/// A server and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchServer {
    /// nginx with Debian's settings.
    Nginx,
    /// `longhaul serve` with this `--pace`, and a record at 1 ms.
    Serve(Pace),
    /// `longhaul serve` with default options.
    ServeDefault,
    /// `longhaul serve --writable`.
    Writable,
    /// The Globus GridFTP server, for anonymous users.
    Globus,
}

impl BenchServer {
    /// Returns the server's command; `longhaul` is the program as a shell reads it.
    ///
    /// The server reads `$LAB_DIR/www`, and stores uploads in `$LAB_DIR/copies`.
    ///
    /// # Errors
    /// Names a missing program.
    pub(crate) fn command(self, longhaul: &str) -> Result<String> {
        let serve = |directory: &str, options: &str| {
            format!("exec {longhaul} serve \"$LAB_DIR\"/{directory} --listen $LAB_SERVER:{PORT} {options}")
        };
        Ok(match self {
            Self::Nginx => {
                let nginx = nginx::find()?;
                format!("exec {} -p \"$LAB_DIR\" -c \"$LAB_DIR\"/{}", nginx.display(), nginx::CONFIGURATION)
            }
            Self::Serve(pace) => {
                let pace = pace.option();
                serve("www", &format!("--pace {pace} --record-interval 1ms --record \"$LAB_RECORD\""))
            }
            Self::ServeDefault => serve("www", ""),
            Self::Writable => serve("copies", "--writable --allow-cleartext --token \"$LAB_DIR\"/token"),
            Self::Globus => {
                fs::metadata(GLOBUS).with_context(|| {
                    format!("{GLOBUS} is not installed; `make bench` does that, or scripts/setup.sh test")
                })?;
                // Ignores the packaged configuration, which fixes port 2811. Runs as root, which may read every directory, like nginx.
                format!(
                    "exec {GLOBUS} -c /dev/null -aa -anonymous-user root -allow-root -p {PORT} -control-interface $LAB_SERVER \
                     -data-interface $LAB_SERVER -rp \"$LAB_DIR\"/www"
                )
            }
        })
    }
}
