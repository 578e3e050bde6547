//! The kinds of failure, which all errors share; the failure that crosses layers, and whether a
//! retry can help.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::retry::Retry;
use crate::units::Bytes;

/// The kind of a failure: what a command's exit code tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The command or the environment is wrong.
    Usage,
    /// The data is corrupt or differs from what was expected.
    Data,
    /// The server does not have the file, or a named local file cannot be read.
    NotFound,
    /// The host name does not resolve.
    NoHost,
    /// The server cannot be reached or cannot serve.
    Unavailable,
    /// An error in the program.
    Internal,
    /// This host lacks memory, threads or a feature of the kernel.
    Host,
    /// The output cannot be created.
    CannotCreate,
    /// The disk failed: it is full, or cannot be read or written.
    Disk,
    /// Temporary: run again.
    Temporary,
    /// The server broke the protocol, or is not trusted.
    Protocol,
    /// Access is denied.
    Denied,
    /// The configuration requests something that is not available.
    Config,
    /// The user interrupted the command.
    Interrupted,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::Usage,
        Self::Data,
        Self::NotFound,
        Self::NoHost,
        Self::Unavailable,
        Self::Internal,
        Self::Host,
        Self::CannotCreate,
        Self::Disk,
        Self::Temporary,
        Self::Protocol,
        Self::Denied,
        Self::Config,
        Self::Interrupted,
    ];

    /// Returns whether a retry can help, unless the error itself says more.
    pub const fn retry(self) -> Retry {
        match self {
            Self::Unavailable | Self::Temporary => Retry::Backoff,
            _ => Retry::Never,
        }
    }

    /// Returns the kind of a request for a file that an HTTP server or proxy has refused by
    /// `status`.
    pub const fn of_status(status: u16) -> Self {
        of_status(status).0
    }
}

impl Retry {
    /// Returns the retry after a refusal by an HTTP server or proxy, which may state in Retry-After
    /// when it answers again.
    pub fn of_status(status: u16, retry_after: Option<Duration>) -> Self {
        match (of_status(status).1, retry_after) {
            (Self::Backoff, Some(wait)) => Self::After(wait),
            (retry, _) => retry,
        }
    }
}

/// Classifies a refusal by its status (RFC 9110, section 15).
const fn of_status(status: u16) -> (FailureKind, Retry) {
    match status {
        401 | 403 | 407 | 451 => (FailureKind::Denied, Retry::Never),
        404 | 410 => (FailureKind::NotFound, Retry::Never),
        // Busy, or failing for now.
        408 | 425 | 429 | 500 | 502..=504 => (FailureKind::Unavailable, Retry::Backoff),
        501 | 505..=599 => (FailureKind::Unavailable, Retry::Never),
        _ => (FailureKind::Protocol, Retry::Never),
    }
}

/// A failure of a source, its connection or a stream, however it came about.
#[derive(Debug, Clone, Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Whether a retry can help.
    pub retry: Retry,
    /// The cause, which the control of the number of streams uses.
    pub cause: Cause,
    message: String,
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The server accepts no further connection for now.
    Refused,
    /// The server could not be reached.
    Unreachable,
    /// Another stream stole all leases of this stream, or the transfer ends.
    Interrupted,
    /// The server's file is not the one that the transfer started with.
    OtherFile,
    /// The server's file is not newer than the local one.
    NotModified,
    /// An error that affects every stream of the source.
    EveryStream,
    /// This host's memory is exhausted.
    Memory,
    /// The connection or the response failed.
    Connection,
}

impl Failure {
    /// Creates the failure of a connection, with the retry of its kind; `message` names the
    /// operation and the address.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, retry: kind.retry(), cause: Cause::Connection, message: message.into() }
    }

    /// Replaces the cause.
    #[must_use]
    pub fn caused_by(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// Replaces the retry.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Creates the error of a cancelled transfer, or of a stream whose leases were stolen.
    pub fn interrupted() -> Self {
        Self::new(FailureKind::Interrupted, "cancelled").caused_by(Cause::Interrupted)
    }

    /// Returns whether the server or the path to it failed, as opposed to the file or this
    /// transfer.
    pub fn is_of_server(&self) -> bool {
        !matches!(self.cause, Cause::OtherFile | Cause::EveryStream | Cause::Interrupted)
            && self.retry != Retry::AtOnce
    }

    /// Returns whether a retry can help an operation that no server has answered yet: an
    /// unreachable one stays so.
    pub fn first_retry(&self) -> Retry {
        self.retry.unless(self.cause == Cause::Unreachable)
    }

    /// Returns whether the server may have failed because a range was requested.
    pub fn may_be_of_ranges(&self) -> bool {
        matches!(self.cause, Cause::Refused | Cause::Interrupted | Cause::Connection)
    }

    /// Creates the error of a source that did not describe the file in time.
    pub fn unanswered(shown: &str, limit: Duration) -> Self {
        let message = format!("{shown} has not described the file within {} s", limit.as_secs());
        Self::new(FailureKind::Temporary, message)
    }

    /// Creates the error of a stream all of whose leases were stolen.
    pub fn stolen(shown: &str) -> Self {
        let message = format!("{shown} sent too little over this connection: another stream has taken over");
        Self::new(FailureKind::Temporary, message).caused_by(Cause::Interrupted)
    }

    /// Creates the error of a stalled connection.
    pub fn stalled(shown: &str, least: Bytes, waited: Duration) -> Self {
        let message =
            format!("{shown} sent less than {least} within {waited:?}: taken for dead; run again to resume");
        Self::new(FailureKind::Temporary, message)
    }

    /// Creates the error of a panicked thread.
    pub fn panicked(what: &str) -> Self {
        let message = format!("{what} failed: report this as a bug");
        Self::new(FailureKind::Internal, message).caused_by(Cause::EveryStream)
    }

    /// Creates the error of a failed allocation of a segment.
    pub fn memory(source: &io::Error) -> Self {
        let message = format!(
            "cannot allocate a segment of the application buffer: {source}; use a smaller --app-buffer"
        );
        Self::new(FailureKind::Host, message).caused_by(Cause::Memory)
    }
}
