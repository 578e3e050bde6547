//! Errors of a probe or a part of it; every message names the operation, the host or URL, and a
//! remedy.

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::iperf3::Iperf3Error;
use thiserror::Error;

use crate::source::http::HttpError;

/// The reason why a target or its server cannot be measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The HTTP server was not measured.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// iperf3 failed.
    #[error("cannot measure with iperf3 at {at}: {source}")]
    Iperf3 {
        /// The server.
        at: String,
        /// The error of iperf3.
        source: Iperf3Error,
    },
    /// Any other failure.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl ProbeError {
    /// Creates the error of a target that is no host and no URL, or names no address.
    pub(super) fn target(text: &str, why: &str) -> Self {
        let message = format!(
            "cannot probe '{text}': {why}; write a host, or a URL of http, https, ftp, ftps, gsiftp or iperf3"
        );
        Failure::new(FailureKind::Usage, message).into()
    }

    /// Creates the error of a socket or a program of this host.
    pub(super) fn local(what: &str, error: &std::io::Error) -> Self {
        Failure::new(FailureKind::Host, format!("cannot {what}: {error}")).into()
    }

    /// Returns whether earlier measurements may be cut short too. A server that refuses one request
    /// has answered the earlier ones.
    pub(super) fn cuts_measurements(&self) -> bool {
        !matches!(self, Self::Http(HttpError::Status { .. }))
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Http(error) => error.kind(),
            Self::Iperf3 { source: Iperf3Error::Garbage(_), .. } => FailureKind::Protocol,
            Self::Iperf3 { source: Iperf3Error::Refused(_) | Iperf3Error::Endless(_), .. } => {
                FailureKind::Unavailable
            }
            Self::Failed(failure) => failure.kind,
        }
    }
}
