//! Classes of errors, and their retries.

use longhaul_core::proto::socks5::SocksError;

use super::error::HttpError;
use super::first_answer::RangeFailure;
use crate::connect::ConnectError;
use crate::failure::FailureKind;
use crate::retry::Retry;

/// The class of an error, for exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command or the environment is wrong (EX_USAGE).
    Usage,
    /// A named local file cannot be read (EX_NOINPUT).
    LocalFile,
    /// The server does not have the file (EX_NOINPUT).
    NotFound,
    /// The host name does not resolve (EX_NOHOST).
    NoHost,
    /// The server cannot be reached or cannot serve (EX_UNAVAILABLE).
    Unavailable,
    /// A step timed out (EX_TEMPFAIL).
    Timeout,
    /// The server broke the protocol (EX_PROTOCOL).
    Protocol,
    /// The server or proxy denies access (EX_NOPERM).
    Denied,
    /// The server is not trusted (EX_PROTOCOL).
    Tls,
    /// A connection broke (EX_IOERR).
    Io,
    /// The user cancelled the transfer.
    Cancelled,
    /// The file on the server is shorter than expected (EX_DATAERR).
    Shrunk,
    /// An error in the program (EX_SOFTWARE).
    Internal,
}

impl From<ErrorKind> for FailureKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::LocalFile | ErrorKind::NotFound => Self::NotFound,
            ErrorKind::NoHost => Self::NoHost,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Timeout | ErrorKind::Io => Self::Temporary,
            ErrorKind::Protocol | ErrorKind::Tls => Self::Protocol,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Shrunk => Self::Data,
            ErrorKind::Cancelled => Self::Interrupted,
            ErrorKind::Internal => Self::Internal,
        }
    }
}

impl HttpError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Url { .. }
            | Self::Header(_)
            | Self::OwnHeader(_)
            | Self::ProxySetting { .. }
            | Self::Cleartext { .. } => ErrorKind::Usage,
            Self::CaFile { .. } | Self::ClientCertificate { .. } | Self::Netrc { .. } => ErrorKind::LocalFile,
            Self::Connect(error) => error.into(),
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Tls { .. } | Self::NoRoots => ErrorKind::Tls,
            Self::Status { status, .. } | Self::ProxyRefused { status, .. } => match status {
                404 | 410 => ErrorKind::NotFound,
                401 | 403 | 407 | 451 => ErrorKind::Denied,
                408 | 425 | 429 | 500..=599 => ErrorKind::Unavailable,
                _ => ErrorKind::Protocol,
            },
            Self::Socks { source, .. } => match source {
                SocksError::NeedsLogin | SocksError::Denied => ErrorKind::Denied,
                SocksError::NotSocks => ErrorKind::Protocol,
                SocksError::TooLong => ErrorKind::Usage,
                SocksError::Refused(_) => ErrorKind::Unavailable,
            },
            Self::Send { .. }
            | Self::Receive { .. }
            | Self::ClosedBeforeHead { .. }
            | Self::ClosedEarly { .. }
            | Self::NoCloseNotify { .. } => ErrorKind::Io,
            Self::HeadTooLong { .. }
            | Self::TooManyInterim { .. }
            | Self::NotModified { .. }
            | Self::NotHttp { .. }
            | Self::Head { .. }
            | Self::Chunked { .. }
            | Self::RedirectLoop(_)
            | Self::TooManyRedirects(_)
            | Self::RedirectRefused { .. } => ErrorKind::Protocol,
            Self::RangeNotSatisfiable { .. } => ErrorKind::Shrunk,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::OutOfOrder { .. } => ErrorKind::Internal,
        }
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
            // A general failure, or the host could not be reached. A retry does not change rules (RFC 1928, section 6).
            Self::Socks { source: SocksError::Refused(1 | 3..=6), .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::Timeout { .. }
            | Self::ClosedBeforeHead { .. }
            | Self::ClosedEarly { .. }
            | Self::NoCloseNotify { .. } => Retry::Backoff,
            Self::Connect(error) if error.may_be_retried() => Retry::Backoff,
            _ => Retry::Never,
        }
    }

    /// Returns whether a retry can help an operation that no server has answered yet: an unreachable one stays so.
    pub(crate) fn first_retry(&self) -> Retry {
        self.retry().unless(self.is_before_connection())
    }
}

impl From<&ConnectError> for ErrorKind {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Resolve { .. } => Self::NoHost,
            ConnectError::Refused { .. } => Self::Unavailable,
            ConnectError::ResolveTimeout { .. } | ConnectError::Timeout { .. } => Self::Timeout,
            ConnectError::Thread { .. } => Self::Internal,
            ConnectError::Cancelled => Self::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;

    use super::*;
    use crate::connect::Attempts;
    use crate::source::http::safe_url::{SafeUrl, UrlAndPeer};

    #[test]
    fn only_refusals_and_failed_connections_hint_at_an_expired_url() {
        let at = || UrlAndPeer {
            url: SafeUrl::of(&"http://h/".parse().unwrap()),
            peer: ([127, 0, 0, 1], 80).into(),
        };
        for status in [400, 401, 402, 403, 404, 410, 416, 429, 500, 503] {
            let (reason, unspoken_login) = (Box::default(), false);
            let error = HttpError::Status {
                at: at(),
                status,
                reason,
                explanation: None,
                unspoken_login,
                retry_after: None,
            };
            assert_eq!(error.may_be_expired(), ![402, 416, 429, 500, 503].contains(&status), "{status}");
        }
        let refused = ConnectError::Refused { host: "h".into(), attempts: Attempts::default() };
        let untrusted = HttpError::Tls { at: at(), why: "expired".into() };
        let broken = HttpError::ClosedEarly { at: at(), got: Bytes::ZERO, expected: None };
        for (error, is_expired) in [
            (HttpError::Connect(refused), true),
            (untrusted, true),
            (broken, false),
            (HttpError::Cancelled, false),
        ] {
            assert_eq!(error.may_be_expired(), is_expired, "{error}");
        }
    }
}
