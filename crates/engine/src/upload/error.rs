//! Errors of uploads.

use std::io;
use std::time::Duration;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::ranges::RangeSet;
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::send::SendError;
use crate::source::gridftp::FtpError;
use crate::source::http::{HttpError, UrlAndPeer, of_tls, send_error};
use crate::transfer::error::TransferError;

/// An error of an upload; a server that can resume keeps what it has received. Each variant is one
/// that a caller treats in its own way; all others are [`Failed`](Self::Failed).
#[derive(Debug, Error)]
pub enum UploadError {
    /// The connection to the server, or the response, failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The socket failed.
    #[error("sending to {0} failed: {1}; check the network and run again")]
    Send(UrlAndPeer, io::Error),
    /// The server refused a request.
    #[error("{failure}")]
    Refused {
        /// The status code.
        status: u16,
        /// The server's Retry-After.
        retry_after: Option<Duration>,
        /// The failure.
        failure: Failure,
    },
    /// The streams ended before the server had every range.
    #[error(transparent)]
    Streams(#[from] TransferError),
    /// Any other failure: of the source, of the answer, or of an FTP server.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl UploadError {
    /// Creates the error of an answer that contradicts the upload.
    pub(super) fn answer(at: &UrlAndPeer, why: &str) -> Self {
        Failure::new(FailureKind::Protocol, format!("cannot use the answer of {at}: {why}")).into()
    }

    /// Creates the error of a server that has another part of the file than it reported before.
    pub(super) fn moved(at: &UrlAndPeer) -> Self {
        let message =
            format!("{at} has another part of the file than it reported; run again to continue from there");
        Failure::new(FailureKind::Temporary, message).into()
    }

    /// Creates the error of a server that acknowledged less than
    /// [`MIN_DELIVERY`](crate::delivery_stall::MIN_DELIVERY) within the timeout.
    pub(super) fn stalled(at: &UrlAndPeer, waited: Duration) -> Self {
        let message = format!("{at} took nothing within {waited:?}: taken for dead; run again");
        Failure::new(FailureKind::Temporary, message).into()
    }

    /// Creates the error of bytes on the server that differ from the source, even after they were
    /// sent again.
    pub(super) fn corrupted(at: &UrlAndPeer, ranges: &RangeSet, rounds: u32) -> Self {
        let message = if ranges.total() == Bytes::ZERO {
            format!(
                "{at} refuses the file's digest, although the digests of all pieces agree, after {rounds} attempts; the memory of one side changes \
                 bytes: check it and run again"
            )
        } else {
            format!(
                "{at} has other bytes than were sent in {ranges}, after {rounds} attempts to send them again; the network, or the memory or disk of \
                 one side, changes bytes: check them and run again, which sends only these"
            )
        };
        Failure::new(FailureKind::Data, message).into()
    }

    /// Creates the error of a thread that ended without the digest, which is a bug.
    pub(super) fn no_digest() -> Self {
        let message = "the digest was not computed: report this as a bug, and use --no-verify meanwhile";
        Failure::new(FailureKind::Internal, message).into()
    }

    /// Creates the error of a failed send.
    pub(super) fn of_send(error: SendError, at: &UrlAndPeer) -> Self {
        match error {
            SendError::Socket(source) if of_tls(&source).is_some() => send_error(source, at).into(),
            SendError::Socket(source) => Self::Send(at.clone(), source),
            SendError::Source(failure) => failure.into(),
        }
    }

    /// Returns the kind of the failure, whether a retry can help, and the cause.
    fn class(&self) -> (FailureKind, Retry, Cause) {
        match self {
            Self::Http(error) => error.class(),
            Self::Failed(failure) | Self::Refused { failure, .. } => {
                (failure.kind, failure.retry, failure.cause)
            }
            // The streams have retried.
            Self::Streams(error) => (error.kind(), Retry::Never, Cause::Connection),
            Self::Send(..) => (FailureKind::Temporary, Retry::Backoff, Cause::Connection),
        }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.class().0
    }

    /// Returns whether a retry can help.
    pub(super) fn retry(&self) -> Retry {
        self.class().1
    }

    /// Returns whether the upload was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.class().2 == Cause::Interrupted
    }

    /// Returns whether the attempt failed before a connection was established. If none was before
    /// either, the command ends without a retry.
    pub(super) fn is_before_connection(&self) -> bool {
        self.class().2 == Cause::Unreachable
    }

    /// Returns whether the error can be a consequence of a cancellation.
    pub(super) fn follows_a_cancellation(&self) -> bool {
        matches!(self.kind(), FailureKind::Interrupted | FailureKind::Internal)
            || matches!(self, Self::Streams(_))
    }

    /// Returns whether the server takes no files at all, however long it is tried.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Refused { status: 405 | 501 | 505, .. })
    }
}

impl From<FtpError> for UploadError {
    fn from(error: FtpError) -> Self {
        let mut failure = Failure::from(error);
        if failure.kind == FailureKind::NotFound {
            // The missing object is the directory in which to create the file.
            failure.kind = FailureKind::CannotCreate;
        }
        failure.into()
    }
}

/// Converts an error of one connection to that of a stream.
impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Self {
        let (kind, retry, cause) = error.class();
        // Another stream could not read the source or satisfy the server either.
        let is_of_all = retry == Retry::Never && !matches!(error, UploadError::Http(_));
        let is_of_all = is_of_all && !matches!(cause, Cause::OtherFile | Cause::Interrupted);
        let cause = if is_of_all { Cause::EveryStream } else { cause };
        Self::new(kind, error.to_string()).caused_by(cause).with_retry(retry)
    }
}

/// Formats a number of bytes for errors.
pub(super) fn of_bytes(found: Option<Bytes>) -> String {
    found.map_or_else(|| "an unknown number of".to_owned(), |found| found.get().to_string())
}
