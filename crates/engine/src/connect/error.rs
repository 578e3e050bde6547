//! Errors of connecting; every message names the host and a remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::retry::Retry;
use thiserror::Error;

/// The reason why there is no connection to a host.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The host was not found, or no address of it answered. The cause is [`Cause::Unreachable`], but for a lack of this host.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The transfer was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Addresses that were tried, and the outcome of each; no error means no answer yet.
#[derive(Debug, Default)]
pub(super) struct Attempts(pub(super) Vec<(SocketAddr, Option<io::Error>)>);

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

    /// Creates the error of a host no address of which accepted a connection.
    pub(super) fn refused(&self, host: &str) -> ConnectError {
        let outcomes = self.of(host);
        let message = format!(
            "cannot connect to {host}: {outcomes}; check that the server runs and that no firewall is in between"
        );
        unreachable(FailureKind::Unavailable, message).into()
    }

    /// Creates the error of a host no address of which answered in time.
    pub(super) fn timeout(&self, host: &str, waited: Duration) -> ConnectError {
        let outcomes = self.of(host);
        let message = format!(
            "cannot connect to {host}: no answer within {waited:?} ({outcomes}); check that the server runs and the network"
        );
        unreachable(FailureKind::Temporary, message).into()
    }
}

/// Creates the failure of a host that was not reached.
pub(super) fn unreachable(kind: FailureKind, message: String) -> Failure {
    Failure::new(kind, message).caused_by(Cause::Unreachable)
}

/// Creates the error of a host that does not resolve, or of an unreachable name service.
///
/// The standard library keeps only the text of getaddrinfo's error; without setlocale it is English. "Temporary failure" is
/// EAI_AGAIN.
pub(super) fn unresolved(host: &impl std::fmt::Display, source: &io::Error) -> ConnectError {
    let text = source.to_string();
    let reason = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    let message = format!("cannot find the host {host}: {reason}; check its name and the network");
    let retry = if text.contains("Temporary failure") { Retry::Backoff } else { Retry::Never };
    unreachable(FailureKind::NoHost, message).with_retry(retry).into()
}

impl ConnectError {
    /// Names the variable or option that sets the host as a proxy.
    pub(crate) fn of_proxy(self, variable: &str) -> Self {
        let Self::Failed(failure) = self else { return self };
        let message = format!("{failure}; it is the proxy of {variable}");
        let of_proxy = Failure::new(failure.kind, message);
        of_proxy.caused_by(failure.cause).with_retry(failure.retry).into()
    }
}
