//! Why a server does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_core::units::Rate;
use thiserror::Error;

/// Why a server does not start; each names what was tried, on what, and what to do.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The directory to serve does not exist, is no directory or may not be read.
    #[error("cannot serve {path}: {source}", path = path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel cannot confine file names to a directory.
    #[error("cannot serve {path}: openat2 is missing or forbidden ({source}); it needs Linux 5.6 and a sandbox that permits it", path = path.display())]
    NoOpenat2 {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Files that were looked at cannot be opened.
    #[error("cannot serve {path}: /proc/self/fd cannot be used ({source}); mount /proc here", path = path.display())]
    NoProc {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another with --listen ADDR:PORT")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address for metrics cannot be listened on.
    #[error("cannot serve metrics on {address}: {source}; choose another with --metrics=ADDR:PORT")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refuses the congestion control.
    #[error("the kernel refuses congestion control '{name}' ({source}); it offers: {available}")]
    Congestion {
        /// The name asked for.
        name: String,
        /// Those it has loaded.
        available: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refuses to pace.
    #[error("the kernel refuses to pace connections at {rate}: {source}; serve with --pace off")]
    Pace {
        /// The rate asked for.
        rate: Rate,
        /// What the kernel said.
        source: io::Error,
    },
    /// A certificate or key file holds none, or cannot be read.
    #[error("cannot read a {what} from {path}: {reason}", path = path.display())]
    TlsFile {
        /// "certificate" or "private key".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The certificate and the key do not make an HTTPS server.
    #[error("cannot serve HTTPS with {cert} and {key}: {source}", cert = cert.display(), key = key.display())]
    TlsPair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls said.
        source: rustls::Error,
    },
}

impl ServeError {
    /// Tells what the kernel would take instead of `name`.
    pub(crate) fn congestion(name: &str, source: io::Error) -> Self {
        Self::Congestion { name: name.to_owned(), available: available_congestion_controls(), source }
    }
}

fn available_congestion_controls() -> String {
    let list = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    list.map_or_else(|_| "unknown".to_owned(), |names| names.trim().replace(' ', ", "))
}
