//! Errors of an HTTP source; every message names the operation, the URL or host, and a remedy.

use std::io;
use std::time::{Duration, SystemTime};

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::Malformed;
use longhaul_core::proto::http::{ContentRange, HeaderError, ResponseHead};
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::connect::Deadline;
use crate::source::http::http_source::first_answer::RangeFailure;
use crate::source::http::target::safe_url::{SafeUrl, UrlAndPeer};

/// An error of the HTTP source. Each variant is one that a caller treats in its own way; all others
/// are [`Failed`](Self::Failed).
#[derive(Debug, Error)]
pub enum HttpError {
    /// The SOCKS proxy did not reach the server.
    #[error("{0}")]
    SocksRefused(Failure),
    /// TLS failed: the certificate is not trusted, or the ends have no common parameters.
    #[error("cannot set up TLS with {0}: {1}")]
    Tls(UrlAndPeer, String),
    /// A request could not be sent.
    #[error("cannot send a request to {0}: {1}")]
    Send(UrlAndPeer, io::Error),
    /// Receiving failed.
    #[error("cannot receive from {0}: {1}")]
    Receive(UrlAndPeer, io::Error),
    /// A step between connecting and the response's head timed out.
    #[error("{0} did not finish {1} within {2:?}; try again later")]
    Timeout(UrlAndPeer, &'static str, Duration),
    /// The connection ended before an answer, or after this part of its head.
    #[error("{0} closed the connection before it had answered ({1} of a head came)")]
    ClosedBeforeHead(UrlAndPeer, Bytes),
    /// The head of a response is not HTTP/1, invalid or unsafe.
    #[error("cannot use the answer of {0}: {1}")]
    Head(UrlAndPeer, Malformed),
    /// The server answered with a status other than success.
    #[error("{failure}")]
    Status {
        /// The status code.
        status: u16,
        /// The reason phrase, escaped.
        reason: Box<str>,
        /// The failure.
        failure: Failure,
    },
    /// The requested range lies outside the file (416).
    #[error("{at} has no such range{}: the file is shorter than expected", .total.map_or_else(String::new, |t| format!(" in a file of {} bytes", t.get())))]
    RangeNotSatisfiable {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The length of the file, if in the answer.
        total: Option<Bytes>,
    },
    /// A redirect from a URL to another, escaped and without secrets, cannot or must not be
    /// followed.
    #[error("will not follow the redirect from {0} to {1}: {2}")]
    RedirectRefused(SafeUrl, String, &'static str),
    /// Any other failure.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl HttpError {
    /// Returns an error if `head` is not a success; `explain` returns the server's explanation of a
    /// refusal as one line.
    pub(crate) fn of_status(
        at: &UrlAndPeer,
        head: &ResponseHead,
        explain: impl FnOnce() -> Option<String>,
    ) -> Result<(), Self> {
        let status = head.status();
        match (status, head.content_range()) {
            // 202 is a notice, 204 has no content, 205 and 207 have none that is the file's, but as
            // a first answer (`Client::follow`). With IM, 226 is a difference between two versions
            // (RFC 3229), which no request asks for.
            (200..=299, _)
                if !matches!(status, 202 | 204 | 205 | 207)
                    && (status != 226 || head.text("im").is_none()) =>
            {
                return Ok(());
            }
            (304, _) => {
                let failure = Failure::new(FailureKind::Protocol, format!("{at} has nothing newer"));
                return Err(failure.caused_by(Cause::NotModified).into());
            }
            (416, range) => {
                let total = match range {
                    Some(ContentRange::Unsatisfied { total }) => Some(total),
                    _ => None,
                };
                return Err(Self::RangeNotSatisfiable { at: at.clone(), total });
            }
            _ => {}
        }
        let (explanation, kind) = (explain(), FailureKind::of_status(status));
        let meaning = explanation.as_deref().unwrap_or(meaning(status));
        let failure = refusal(&format!("{at} answered"), head, kind, meaning, remedy(status));
        Err(Self::Status { status, reason: head.reason().escape_debug().to_string().into(), failure })
    }

    /// Returns the kind of the failure, whether a retry can help, and the cause.
    pub(crate) fn class(&self) -> (FailureKind, Retry, Cause) {
        let (kind, cause) = match self {
            Self::Failed(failure) | Self::SocksRefused(failure) | Self::Status { failure, .. } => {
                return (failure.kind, failure.retry, failure.cause);
            }
            Self::RangeNotSatisfiable { .. } => (FailureKind::Data, Cause::OtherFile),
            Self::Send(..) | Self::Receive(..) | Self::Timeout(..) | Self::ClosedBeforeHead(..) => {
                (FailureKind::Temporary, Cause::Connection)
            }
            Self::Tls(..) | Self::Head(..) | Self::RedirectRefused(..) => {
                (FailureKind::Protocol, Cause::Connection)
            }
        };
        (kind, kind.retry(), cause)
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.class().0
    }

    /// Returns whether a retry can help.
    pub fn retry(&self) -> Retry {
        self.class().1
    }

    /// Returns whether a retry can help an operation that no server has answered yet: an
    /// unreachable one stays so.
    pub(crate) fn first_retry(&self) -> Retry {
        self.retry().unless(self.is_before_connection())
    }

    /// Returns whether an established connection broke.
    pub fn is_broken_connection(&self) -> bool {
        self.kind() == FailureKind::Temporary
            && !matches!(self, Self::Timeout(..))
            && !self.is_before_connection()
    }

    /// Returns whether the transfer was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.class().2 == Cause::Interrupted
    }

    /// Returns whether no connection was established.
    pub fn is_before_connection(&self) -> bool {
        self.class().2 == Cause::Unreachable
    }

    /// Returns whether the target of a redirect may have expired, so that the original URL must be
    /// requested again.
    ///
    /// S3 and Google Cloud Storage answer 403 for an expired signed URL, and 400 (ExpiredToken) for
    /// expired credentials in it.
    pub fn may_be_expired(&self) -> bool {
        let refused = matches!(self, Self::Status { status: 400 | 401 | 403 | 404 | 410, .. });
        refused || self.is_before_connection() || matches!(self, Self::Tls(..))
    }

    /// Returns whether a connected server has answered nothing that can be understood.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(
            self,
            Self::Send(..)
                | Self::Receive(..)
                | Self::ClosedBeforeHead(..)
                | Self::Head(..)
                | Self::Timeout(..)
        )
    }

    /// Returns how the server failed if the error may be its answer to a range: a request for the
    /// whole file may succeed.
    pub(crate) fn range_failure(&self) -> Option<RangeFailure> {
        match self {
            Self::RangeNotSatisfiable { .. } => Some(RangeFailure::Unsatisfiable),
            Self::Status { status: 407 | 408 | 425, .. } => None,
            // Some servers are too busy for ranges alone, or find no file.
            Self::Status { status: 401 | 404 | 410 | 429 | 500 | 502..=599, .. } => {
                Some(RangeFailure::Broken)
            }
            Self::Status { status: 400..=501, .. } => Some(RangeFailure::Refused),
            error => error.is_unanswered().then_some(RangeFailure::Broken),
        }
    }
}

impl From<HeaderError> for HttpError {
    fn from(error: HeaderError) -> Self {
        Failure::new(FailureKind::Usage, format!("cannot send a header: {error}")).into()
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let (kind, retry, cause) = error.class();
        Self::new(kind, error.to_string()).caused_by(cause).with_retry(retry)
    }
}

/// Creates the error of a URL that cannot be used; `why` names the reason and a remedy.
pub(crate) fn unusable_url(url: &impl std::fmt::Display, why: &str) -> Failure {
    Failure::new(FailureKind::Usage, format!("cannot use the URL {url}: {why}"))
}

/// Creates the error of a 206 with another range than requested.
pub(crate) fn bad_range(shown: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Protocol, format!("cannot use the answer of {shown}: {why}"))
}

/// Creates the error of a connection that ended within a body, whose length is `expected` if it is
/// known.
pub(super) fn closed_early(at: &UrlAndPeer, got: Bytes, expected: Option<Bytes>) -> Failure {
    let expected = expected.map_or_else(|| "an unknown number of".to_owned(), |e| e.get().to_string());
    let message = format!("{at} closed the connection early, after {} of {expected} bytes", got.get());
    Failure::new(FailureKind::Temporary, message)
}

/// Fails once the deadline has passed or the transfer is cancelled; `step` completes "did not
/// finish ...".
pub(super) fn check(deadline: &Deadline<'_>, at: &UrlAndPeer, step: &'static str) -> Result<(), HttpError> {
    deadline.check_cancel()?;
    if deadline.left().is_zero() {
        return Err(HttpError::Timeout(at.clone(), step, deadline.limit));
    }
    Ok(())
}

/// Creates the failure of a refused request: `said`, then the status, its meaning and a remedy;
/// either may be empty.
pub(crate) fn refusal(
    said: &str,
    head: &ResponseHead,
    kind: FailureKind,
    meaning: &str,
    remedy: &str,
) -> Failure {
    let (status, reason) = (head.status(), head.reason().escape_debug());
    let retry_after = head.retry_after(SystemTime::now());
    let remedy = if asks_unspoken_login(head) { UNSPOKEN_LOGIN } else { remedy };
    let parts = [(": ", meaning), ("; ", remedy)].into_iter().filter(|(_, text)| !text.is_empty());
    let why: String = parts.map(|(mark, text)| format!("{mark}{text}")).collect();
    let wait = retry_after.map_or_else(String::new, |wait| format!(", it says in {} s", wait.as_secs()));
    // A server refuses by 429 and 503 only because it serves too many.
    let cause = if matches!(status, 429 | 503) { Cause::Refused } else { Cause::Connection };
    let failure = Failure::new(kind, format!("{said} {status} {reason}{why}{wait}"));
    failure.caused_by(cause).with_retry(Retry::of_status(status, retry_after))
}

/// Returns the likely meaning of a status.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "the server did not understand; is this the right port and scheme?",
        403 | 451 => "this client may not have the file, or may not log in over plain http",
        404 | 410 => "there is no such file; check the URL",
        202 => "it has no file yet; try again later",
        204 | 205 => "it has no content",
        _ => "",
    }
}

/// The advice for a server that asks for a login in no way that this program speaks.
const UNSPOKEN_LOGIN: &str = "it asks for a login by NTLM or Negotiate (Kerberos), which longhaul does not speak: ask its owner for Basic, \
                                         Digest or a token";

/// Returns whether a server asks for a login in no way that this program speaks.
fn asks_unspoken_login(head: &ResponseHead) -> bool {
    let offers = |scheme: &&str| head.offers_scheme("www-authenticate", scheme);
    let speaks = ["basic", "digest", "bearer"].iter().any(offers);
    head.status() == 401 && !speaks && ["ntlm", "negotiate"].iter().any(offers)
}

/// Returns a remedy for a status.
pub(crate) fn remedy(status: u16) -> &'static str {
    match status {
        401 => "give a login with --user, in ~/.netrc or in the URL, or a token with --token FILE",
        407 => "give the proxy's login in the proxy's URL",
        _ if FailureKind::of_status(status) == FailureKind::Unavailable => "try again later",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_and_failed_connections_hint_at_an_expired_url() {
        let at =
            UrlAndPeer { url: SafeUrl::of(&"http://h/".parse().unwrap()), peer: ([127, 0, 0, 1], 80).into() };
        for status in [400, 401, 402, 403, 404, 410, 416, 429, 500, 503] {
            let head = format!("HTTP/1.1 {status} No\r\nRetry-After: 9\r\n\r\n");
            let head = ResponseHead::parse(head.as_bytes()).unwrap();
            let error = HttpError::of_status(&at, &head, || None).unwrap_err();
            assert_eq!(error.may_be_expired(), ![402, 416, 429, 500, 503].contains(&status), "{status}");
            let failure = Failure::from(error);
            let (retry, cause) = match status {
                429 | 503 => (Retry::After(Duration::from_secs(9)), Cause::Refused),
                500 => (Retry::After(Duration::from_secs(9)), Cause::Connection),
                416 => (Retry::Never, Cause::OtherFile),
                _ => (Retry::Never, Cause::Connection),
            };
            assert_eq!((failure.retry, failure.cause), (retry, cause), "{failure}");
        }
        let refused = Failure::new(FailureKind::Unavailable, "refused").caused_by(Cause::Unreachable);
        let untrusted = HttpError::Tls(at.clone(), "expired".into());
        let broken = closed_early(&at, Bytes::ZERO, None).into();
        for (error, is_expired, retry, cause) in [
            (refused.into(), true, Retry::Backoff, Cause::Unreachable),
            (untrusted, true, Retry::Never, Cause::Connection),
            (broken, false, Retry::Backoff, Cause::Connection),
            (Failure::interrupted().into(), false, Retry::Never, Cause::Interrupted),
        ] {
            assert_eq!(error.may_be_expired(), is_expired, "{error}");
            let failure = Failure::from(error);
            assert_eq!((failure.retry, failure.cause), (retry, cause), "{failure}");
        }
    }
}
