//! Converts errors of HTTP to errors of a source.

use longhaul_core::failure::FailureKind;
use longhaul_core::proto::http::RangeError;
use longhaul_core::retry::Retry;

use super::error::HttpError;
use crate::transfer::error::{Cause, SourceError};

impl From<HttpError> for SourceError {
    fn from(error: HttpError) -> Self {
        let cause = match &error {
            HttpError::Status { status: 429 | 503, .. } => Cause::Refused,
            HttpError::RangeNotSatisfiable { .. } => Cause::OtherFile,
            HttpError::NotModified { .. } => Cause::NotModified,
            HttpError::Cancelled => Cause::Interrupted,
            error if error.is_before_connection() => Cause::Unreachable,
            _ => Cause::Connection,
        };
        Self::new(error.kind(), error.retry(), cause, error.to_string())
    }
}

/// Creates the error of a 206 with another range than requested.
pub(super) fn bad_range(shown: &str, source: &RangeError) -> SourceError {
    let message = format!("cannot use the answer of {shown}: {source}");
    SourceError::new(FailureKind::Protocol, Retry::Never, Cause::Connection, message)
}
