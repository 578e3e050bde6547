//! Errors of connecting; every message names the host and a remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::failure::FailureKind;
use longhaul_core::retry::Retry;
use thiserror::Error;

/// The reason why there is no connection to a host.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The resolver's thread could not be started.
    #[error("cannot start a thread to look up the host {host}: {source}")]
    Thread {
        /// The host.
        host: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The host does not resolve, or the name service is unreachable.
    #[error("cannot find the host {host}: {}; check its name and the network", reason(.source))]
    Resolve {
        /// The host.
        host: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// The name service did not answer in time.
    #[error(
        "cannot find the host {host}: the name service did not answer within {waited:?}; check the network"
    )]
    ResolveTimeout {
        /// The host.
        host: String,
        /// The timeout.
        waited: Duration,
    },
    /// No address of the host accepted a connection.
    #[error(
        "cannot connect to {host}: {}; check that the server runs and that no firewall is in between",
        .attempts.of(.host)
    )]
    Refused {
        /// The host.
        host: String,
        /// Each address, and the outcome of its attempt.
        attempts: Attempts,
    },
    /// No address of the host answered in time.
    #[error(
        "cannot connect to {host}: no answer within {waited:?} ({}); check that the server runs and the network",
        .attempts.of(.host)
    )]
    Timeout {
        /// The host.
        host: String,
        /// The timeout.
        waited: Duration,
        /// Each address, and the outcome of its attempt.
        attempts: Attempts,
    },
    /// The transfer was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Addresses that were tried, and the outcome of each; no error means no answer yet.
#[derive(Debug, Default)]
pub struct Attempts(pub Vec<(SocketAddr, Option<io::Error>)>);

impl Attempts {
    /// Formats the outcomes; leaves out a single address that equals `host`.
    fn of(&self, host: &str) -> String {
        let outcome = |(address, error): &(SocketAddr, Option<io::Error>)| {
            let mut outcome = error.as_ref().map_or_else(|| "no answer".to_owned(), io::Error::to_string);
            if let SocketAddr::V6(v6) = address
                && v6.ip().is_unicast_link_local()
                && v6.scope_id() == 0
            {
                outcome += &format!("; name the interface of a link-local address, as [{}%25eth0]", v6.ip());
            }
            let is_named = self.0.len() == 1 && address.to_string() == host;
            if is_named { outcome } else { format!("{address}: {outcome}") }
        };
        self.0.iter().map(outcome).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the resolver's reason without its generic prefix.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("failed to lookup address information: ").map_or(text.clone(), str::to_owned)
}

impl ConnectError {
    /// Names the variable or option that sets the host as a proxy, if the host does not resolve.
    pub(crate) fn of_proxy(mut self, variable: &str) -> Self {
        if let Self::Resolve { host, .. } | Self::ResolveTimeout { host, .. } = &mut self {
            *host = format!("{host}, the proxy of {variable}");
        }
        self
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Resolve { .. } => FailureKind::NoHost,
            Self::Refused { .. } => FailureKind::Unavailable,
            Self::ResolveTimeout { .. } | Self::Timeout { .. } => FailureKind::Temporary,
            Self::Thread { .. } => FailureKind::Internal,
            Self::Cancelled => FailureKind::Interrupted,
        }
    }

    /// Returns whether a retry can help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Resolve { source, .. } if is_temporary(source) => Retry::Backoff,
            error => error.kind().retry(),
        }
    }
}

/// Returns whether the failure of name resolution is temporary (EAI_AGAIN).
///
/// The standard library keeps only the text of getaddrinfo's error; without setlocale it is English.
fn is_temporary(error: &io::Error) -> bool {
    error.to_string().contains("Temporary failure")
}
