//! Errors that keep a server from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_core::failure::FailureKind;
use longhaul_core::units::Rate;
use longhaul_sys::host;
use thiserror::Error;

/// An error that keeps a server from starting; its message names the operation, its object, and the remedy.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The directory to serve does not exist, is not a directory, or may not be read.
    #[error("cannot serve {path}: {source}", path = path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel cannot confine file names to a directory.
    #[error("cannot serve {path}: openat2 is missing or forbidden ({source}); it needs Linux 5.6 and a sandbox that permits it", path = path.display())]
    NoOpenat2 {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Files cannot be reopened through /proc for reading.
    #[error("cannot serve {path}: /proc/self/fd cannot be used ({source}); mount /proc here", path = path.display())]
    NoProc {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}; choose another with --listen ADDR:PORT")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server cannot listen on the address for metrics.
    #[error("cannot serve metrics on {address}: {source}; choose another with --metrics=ADDR:PORT")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The measurement endpoint cannot be set up.
    #[error("cannot set up measurements: {source}; serve without --measure")]
    Measure {
        /// The kernel's error.
        source: io::Error,
    },
    /// The start needs a thread, or a descriptor, that the kernel does not give.
    #[error("cannot start the server's threads: {source}; raise ulimit -u and ulimit -n")]
    Threads {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses the congestion control.
    #[error("the kernel refuses congestion control '{name}' ({source}); it offers: {available}")]
    Congestion {
        /// The configured name.
        name: String,
        /// The controls that the kernel has loaded.
        available: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses to pace.
    #[error("the kernel refuses to pace connections at {rate}: {source}; serve with --pace off")]
    Pace {
        /// The configured rate.
        rate: Rate,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file of tokens cannot be used.
    #[error("cannot use the tokens in {path}: {reason}", path = path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// A certificate or key file cannot be read, or contains none.
    #[error("cannot read a {what} from {path}: {reason}", path = path.display())]
    TlsFile {
        /// "certificate", "private key" or the like.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// The certificate and the key do not match.
    #[error("cannot serve HTTPS with {cert} and {key}: {source}", cert = cert.display(), key = key.display())]
    TlsPair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The error from rustls.
        source: rustls::Error,
    },
}

impl ServeError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Root { source, .. } | Self::Listen { source, .. } | Self::Metrics { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                FailureKind::Denied
            }
            Self::Root { .. } => FailureKind::NotFound,
            Self::Listen { .. } | Self::Metrics { .. } => FailureKind::Unavailable,
            Self::NoOpenat2 { .. } | Self::NoProc { .. } | Self::Measure { .. } | Self::Threads { .. } => {
                FailureKind::Host
            }
            Self::Congestion { .. }
            | Self::Pace { .. }
            | Self::Tokens { .. }
            | Self::TlsFile { .. }
            | Self::TlsPair { .. } => FailureKind::Config,
        }
    }
}

impl ServeError {
    /// Reports a refused congestion control, with those that the kernel offers.
    pub(crate) fn congestion(name: &str, source: io::Error) -> Self {
        let mut available = host::available_congestion_controls().join(", ");
        if available.is_empty() {
            available.push_str("unknown");
        }
        Self::Congestion { name: name.to_owned(), available, source }
    }
}
