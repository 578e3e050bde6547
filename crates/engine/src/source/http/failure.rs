//! Kinds of errors, their retries, and the failures that they are.

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::http::RangeError;
use longhaul_core::proto::socks5::SocksError;
use longhaul_core::retry::Retry;

use super::error::HttpError;
use super::first_answer::RangeFailure;
use crate::connect::ConnectError;

impl HttpError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Url { .. }
            | Self::Header(_)
            | Self::OwnHeader(_)
            | Self::ProxySetting { .. }
            | Self::Cleartext { .. } => FailureKind::Usage,
            Self::CaFile { .. } | Self::ClientCertificate { .. } | Self::Netrc { .. } => {
                FailureKind::NotFound
            }
            Self::Connect(error) => error.kind(),
            Self::Status { status, .. } | Self::ProxyRefused { status, .. } => {
                FailureKind::of_status(*status)
            }
            Self::Socks { source, .. } => match source {
                SocksError::NeedsLogin | SocksError::Denied => FailureKind::Denied,
                SocksError::NotSocks => FailureKind::Protocol,
                SocksError::TooLong => FailureKind::Usage,
                SocksError::Refused(_) => FailureKind::Unavailable,
            },
            Self::Timeout { .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::ClosedBeforeHead { .. }
            | Self::ClosedEarly { .. }
            | Self::NoCloseNotify { .. } => FailureKind::Temporary,
            Self::Tls { .. }
            | Self::NoRoots
            | Self::HeadTooLong { .. }
            | Self::TooManyInterim { .. }
            | Self::NotModified { .. }
            | Self::NotHttp { .. }
            | Self::Head { .. }
            | Self::Chunked { .. }
            | Self::RedirectLoop(_)
            | Self::TooManyRedirects(_)
            | Self::RedirectRefused { .. } => FailureKind::Protocol,
            Self::RangeNotSatisfiable { .. } => FailureKind::Data,
            Self::Cancelled => FailureKind::Interrupted,
            Self::OutOfOrder { .. } => FailureKind::Internal,
        }
    }

    /// Returns whether an established connection broke.
    pub fn is_broken_connection(&self) -> bool {
        self.kind() == FailureKind::Temporary && !matches!(self, Self::Timeout { .. } | Self::Connect(_))
    }

    /// Returns whether no connection was established.
    pub fn is_before_connection(&self) -> bool {
        matches!(self, Self::Connect(error) if !matches!(error, ConnectError::Thread { .. }))
    }

    /// Returns whether the target of a redirect may have expired, so that the original URL must be requested again.
    ///
    /// S3 and Google Cloud Storage answer 403 for an expired signed URL, and 400 (ExpiredToken) for expired credentials in it.
    pub fn may_be_expired(&self) -> bool {
        let refused = matches!(self, Self::Status { status: 400 | 401 | 403 | 404 | 410, .. });
        refused || self.is_before_connection() || matches!(self, Self::Tls { .. })
    }

    /// Returns how the server failed if the error may be its answer to a range: a request for the whole file may succeed.
    pub(super) fn range_failure(&self) -> Option<RangeFailure> {
        match self {
            Self::RangeNotSatisfiable { .. } => Some(RangeFailure::Unsatisfiable),
            Self::Status { status: 407 | 408 | 425, .. } => None,
            // Some servers are too busy for ranges alone, or find no file.
            Self::Status { status: 401 | 404 | 410 | 429 | 500 | 502..=599, .. }
            | Self::Timeout { .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::ClosedBeforeHead { .. }
            | Self::NotHttp { .. }
            | Self::Head { .. } => Some(RangeFailure::Broken),
            Self::Status { status: 400..=501, .. } => Some(RangeFailure::Refused),
            _ => None,
        }
    }

    /// Returns whether a retry can help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Status { status, retry_after, .. } => Retry::of_status(*status, *retry_after),
            Self::ProxyRefused { status, .. } => Retry::of_status(*status, None),
            // A retry helps after a general failure, or if the host could not be reached; it does not change rules (RFC 1928,
            // section 6).
            Self::Socks { source: SocksError::Refused(reply), .. } if !matches!(reply, 1 | 3..=6) => {
                Retry::Never
            }
            Self::Connect(error) => error.retry(),
            error => error.kind().retry(),
        }
    }

    /// Returns whether a retry can help an operation that no server has answered yet: an unreachable one stays so.
    pub(crate) fn first_retry(&self) -> Retry {
        self.retry().unless(self.is_before_connection())
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let cause = match &error {
            HttpError::Status { status: 429 | 503, .. } => Cause::Refused,
            HttpError::RangeNotSatisfiable { .. } => Cause::OtherFile,
            HttpError::NotModified { .. } => Cause::NotModified,
            HttpError::Cancelled => Cause::Interrupted,
            error if error.is_before_connection() => Cause::Unreachable,
            _ => Cause::Connection,
        };
        Self::new(error.kind(), error.to_string()).caused_by(cause).with_retry(error.retry())
    }
}

/// Creates the error of a 206 with another range than requested.
pub(super) fn bad_range(shown: &str, source: &RangeError) -> Failure {
    let message = format!("cannot use the answer of {shown}: {source}");
    Failure::new(FailureKind::Protocol, message)
}
