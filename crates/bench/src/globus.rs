//! The Globus GridFTP server: its command, which serves `dir/www`.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

const PROGRAM: &str = "/usr/sbin/globus-gridftp-server";

/// Returns the words after `unshare` that start it at `address`; paths are absolute.
///
/// The server does not start before it has found the names of its host and address, and the lab has no name service: it gets
/// an /etc/hosts of its own.
///
/// # Errors
/// Fails where it is not installed, and where `dir` cannot be written.
pub(crate) fn words(dir: &Path, address: SocketAddr) -> Result<Vec<OsString>> {
    fs::metadata(PROGRAM).with_context(|| {
        format!("{PROGRAM} is not installed; `make bench` does that, or scripts/setup.sh test")
    })?;
    let hosts = dir.join("hosts");
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    fs::write(&hosts, format!("127.0.0.1 localhost\n{} {host}\n", address.ip()))
        .with_context(|| format!("cannot write {}", hosts.display()))?;
    let mut words: Vec<OsString> =
        ["-m", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""].map(OsString::from).into();
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    words.push(hosts.into());
    // The packaged configuration is left out: it fixes the port 2811. Root may read every directory, as with nginx.
    for option in [PROGRAM, "-c", "/dev/null", "-aa", "-anonymous-user", "root", "-allow-root", "-p", &port] {
        words.push(option.into());
    }
    words.extend(["-control-interface", &ip, "-data-interface", &ip, "-rp"].map(OsString::from));
    words.push(dir.join("www").into());
    Ok(words)
}
