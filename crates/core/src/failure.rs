//! The kinds of failure, which all errors share, and whether a retry can help.

use std::time::Duration;

use crate::retry::Retry;

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

    /// Returns the kind of a request for a file that an HTTP server or proxy has refused by `status`.
    pub const fn of_status(status: u16) -> Self {
        of_status(status).0
    }
}

impl Retry {
    /// Returns the retry after a refusal by an HTTP server or proxy, which may state in Retry-After when it answers again.
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
