//! Failures that keep a server from starting.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_sys::host;

/// Creates the failure of opening the directory at `path`.
pub(crate) fn not_served(path: &Path, error: &io::Error) -> Failure {
    Failure::new(or_denied(error, FailureKind::NotFound), format!("cannot serve {}: {error}", path.display()))
}

/// Creates the failure of listening on `address`.
pub(crate) fn not_listening(address: SocketAddr, error: &io::Error) -> Failure {
    let message = format!("cannot listen on {address}: {error}; choose another with --listen ADDR:PORT");
    Failure::new(or_denied(error, FailureKind::Unavailable), message)
}

/// Creates the failure of listening on the separate address for metrics.
pub(crate) fn no_metrics(address: SocketAddr, error: &io::Error) -> Failure {
    let message =
        format!("cannot serve metrics on {address}: {error}; choose another with --metrics=ADDR:PORT");
    Failure::new(or_denied(error, FailureKind::Unavailable), message)
}

fn or_denied(error: &io::Error, kind: FailureKind) -> FailureKind {
    if error.kind() == io::ErrorKind::PermissionDenied { FailureKind::Denied } else { kind }
}

/// Creates the failure of setting a congestion control; names those that the kernel offers.
pub(crate) fn no_congestion(name: &str, error: &io::Error) -> Failure {
    let mut available = host::available_congestion_controls().join(", ");
    if available.is_empty() {
        available.push_str("unknown");
    }
    let message = format!("the kernel refuses congestion control '{name}' ({error}); it offers: {available}");
    Failure::new(FailureKind::Config, message)
}

/// Creates the failure of a file of tokens.
pub(crate) fn no_tokens(path: &Path, reason: &str) -> Failure {
    Failure::new(FailureKind::Config, format!("cannot use the tokens in {}: {reason}", path.display()))
}
