//! Errors of a probe or a part of it; every message names the operation, the host or URL, and a
//! remedy.

use longhaul_core::failure::{Failure, FailureKind};
use thiserror::Error;

use crate::source::http::HttpError;

/// The reason why a target or its server cannot be measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The HTTP server was not measured.
    #[error(transparent)]
    Http(#[from] HttpError),
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

    /// Returns whether earlier measurements may be cut short too. A server that refuses one request
    /// has answered the earlier ones.
    pub(super) fn cuts_measurements(&self) -> bool {
        !matches!(self, Self::Http(HttpError::Status { .. }))
    }

    /// Returns whether the measurement was cancelled, as at the end of its time.
    pub(super) fn is_cancelled(&self) -> bool {
        self.kind() == FailureKind::Interrupted
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Http(error) => error.kind(),
            Self::Failed(failure) => failure.kind,
        }
    }
}
