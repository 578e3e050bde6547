//! Errors of an HTTP source; every message names the operation, the URL or host, and a remedy.

pub(super) mod failure;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use longhaul_core::failure::FailureKind;
use longhaul_core::proto::http::{ChunkedError, ContentRange, HeadError, HeaderError, ResponseHead};
use longhaul_core::proto::socks5::SocksError;
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::connect::{ConnectError, Deadline};
use crate::source::http::target::safe_url::{SafeUrl, UrlAndPeer};

/// An error of the HTTP source; [`kind`](Self::kind) classifies it, [`retry`](Self::retry) returns whether a retry can
/// help.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The URL's scheme or host is not usable.
    #[error("cannot use the URL {url}: {why}")]
    Url {
        /// The URL.
        url: SafeUrl,
        /// The reason, and a remedy.
        why: &'static str,
    },
    /// A header given by the user cannot be sent.
    #[error("cannot send a header: {0}")]
    Header(#[from] HeaderError),
    /// A header given by the user is set by the transfer itself.
    #[error("cannot send the header '{0}': the transfer sets it; remove it")]
    OwnHeader(String),
    /// A proxy from an option or the environment is not usable. Its URL is not shown, because it may contain a
    /// password.
    #[error("cannot use the proxy in {variable}: {why}")]
    ProxySetting {
        /// The environment variable or option.
        variable: &'static str,
        /// The reason, and a remedy.
        why: &'static str,
    },
    /// The file with further root certificates cannot be read.
    #[error("cannot read root certificates from {}: {why}; name a PEM file", .path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// The client's certificate or its key is not usable.
    #[error("cannot use the client's certificate in {}: {why}; name PEM files with --cert and --key", .path.display())]
    ClientCertificate {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// The host has no root certificates.
    #[error(
        "no root certificates on this host, so no server can be trusted: install ca-certificates; or give --cacert FILE"
    )]
    NoRoots,
    /// A login or token would be sent unencrypted.
    #[error(
        "will not send a login or a token to {to} unencrypted, where any host on the path can read it; use https:// or ftps://, or permit \
         it with --allow-cleartext"
    )]
    Cleartext {
        /// The URL, and the peer where that decides.
        to: String,
    },
    /// The server's file is not newer than the local one (304).
    #[error("{at} has nothing newer")]
    NotModified {
        /// The URL and the peer.
        at: UrlAndPeer,
    },
    /// The .netrc file cannot be read.
    #[error("cannot read logins from {}: {why}; correct the file or set NETRC", .path.display())]
    Netrc {
        /// The file.
        path: PathBuf,
        /// The reason, without content of the file.
        why: String,
    },
    /// The host or proxy was not reached.
    #[error(transparent)]
    Connect(ConnectError),
    /// TLS failed: the certificate is not trusted, or the ends have no common parameters.
    #[error("cannot set up TLS with {at}: {why}")]
    Tls {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The reason, and possibly a hint.
        why: String,
    },
    /// The proxy refused to connect.
    #[error(
        "the proxy of {at} refused the connection: {status} {reason}; check the proxy's settings and login"
    )]
    ProxyRefused {
        /// The URL and the proxy's address.
        at: UrlAndPeer,
        /// The proxy's status code.
        status: u16,
        /// The proxy's reason, escaped.
        reason: String,
    },
    /// The SOCKS proxy failed to connect.
    #[error("the proxy of {at} cannot be used: {source}")]
    Socks {
        /// The URL and the proxy's address.
        at: UrlAndPeer,
        /// The reason.
        source: SocksError,
    },
    /// A request could not be sent.
    #[error("cannot send a request to {at}: {source}")]
    Send {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The system's reason.
        source: io::Error,
    },
    /// Receiving failed.
    #[error("cannot receive from {at}: {source}")]
    Receive {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The system's reason.
        source: io::Error,
    },
    /// A step between connecting and the response's head timed out.
    #[error("{at} did not finish {step} within {waited:?}; try again later")]
    Timeout {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The awaited step.
        step: &'static str,
        /// The timeout.
        waited: Duration,
    },
    /// The head of a response exceeds the limit.
    #[error("the answer of {at} has a head of more than {limit}: the server is broken or hostile")]
    HeadTooLong {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The limit.
        limit: Bytes,
    },
    /// The server sends interim answers (1xx) without end.
    #[error("{at} sends interim answers (1xx) without end: the server is broken or hostile")]
    TooManyInterim {
        /// The URL and the peer.
        at: UrlAndPeer,
    },
    /// The answer is not HTTP/1.
    #[error("the answer of {at} is not HTTP/1: it starts with \"{first}\"{hint}")]
    NotHttp {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The first bytes, escaped.
        first: String,
        /// The probable protocol with a remedy, or empty.
        hint: &'static str,
    },
    /// The head of a response is invalid or unsafe.
    #[error("cannot use the answer of {at}: {source}")]
    Head {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The error.
        source: HeadError,
    },
    /// The connection ended before an answer, or within its head.
    #[error("{at} closed the connection before it had answered ({got} of a head came)")]
    ClosedBeforeHead {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The bytes of the head received.
        got: Bytes,
    },
    /// The connection ended before the body.
    #[error("{at} closed the connection early, after {} of {} bytes", .got.get(),
        .expected.map_or_else(|| "an unknown number of".to_owned(), |e| e.get().to_string()))]
    ClosedEarly {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The bytes of the body received.
        got: Bytes,
        /// The body's length, if in the head.
        expected: Option<Bytes>,
    },
    /// A body that ends with the connection was truncated: TLS ended without its closing message.
    #[error("{at} ended a body of unknown length after {} bytes without TLS's closing message: it may be cut off", .got.get())]
    NoCloseNotify {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The bytes of the body received.
        got: Bytes,
    },
    /// The body violates the chunked coding announced by the head.
    #[error("the body from {at} breaks its chunked coding: {source}")]
    Chunked {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The error.
        source: ChunkedError,
    },
    /// The server answered with a status other than success.
    #[error("{at} answered {status} {reason}{}{}", explained(.explanation.as_deref().unwrap_or(meaning(*.status)), remedy(*.status), *.unspoken_login),
        .retry_after.map_or_else(String::new, |wait| format!(", it says in {} s", wait.as_secs())))]
    Status {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The status code.
        status: u16,
        /// The reason phrase, escaped.
        reason: Box<str>,
        /// The server's explanation, as one line.
        explanation: Option<Box<str>>,
        /// Whether the server asks for a login in no way that this program speaks.
        unspoken_login: bool,
        /// The server's Retry-After.
        retry_after: Option<Duration>,
    },
    /// The requested range lies outside the file (416).
    #[error("{at} has no such range{}: the file is shorter than expected", .total.map_or_else(String::new, |t| format!(" in a file of {} bytes", t.get())))]
    RangeNotSatisfiable {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The length of the file, if in the answer.
        total: Option<Bytes>,
    },
    /// Redirects form a loop.
    #[error("the redirects go round in a circle: {0}; ask the server's owner")]
    RedirectLoop(Chain),
    /// There are more redirects than allowed.
    #[error("too many redirects: {0}; fetch the last URL itself")]
    TooManyRedirects(Chain),
    /// A redirect cannot or must not be followed.
    #[error("will not follow the redirect from {from} to {to}: {why}")]
    RedirectRefused {
        /// The URL that redirects.
        from: SafeUrl,
        /// The target, escaped and without secrets.
        to: String,
        /// The reason.
        why: &'static str,
    },
    /// The connection's methods were called in an invalid order, which is a bug.
    #[error("the connection to {at} was used out of order: {why}")]
    OutOfOrder {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The premature call.
        why: &'static str,
    },
    /// The transfer was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl HttpError {
    /// Adds the server's explanation to an error of a status.
    pub(super) fn in_words(mut self, words: impl FnOnce() -> Option<String>) -> Self {
        if let Self::Status { explanation, .. } = &mut self {
            *explanation = words().map(String::into_boxed_str);
        }
        self
    }

    /// Returns an error if `head` is not a success.
    pub(crate) fn of_status(at: &UrlAndPeer, head: &ResponseHead) -> Result<(), Self> {
        let at = at.clone();
        match (head.status(), head.content_range()) {
            // 202 is a notice, 204 has no content, 205 and 207 have none that is the file's, but as a first answer (`Client::follow`). With IM, 226 is a difference between two
            // versions (RFC 3229), which no request asks for.
            (200..=299, _)
                if !matches!(head.status(), 202 | 204 | 205 | 207)
                    && (head.status() != 226 || head.text("im").is_none()) =>
            {
                Ok(())
            }
            (304, _) => Err(Self::NotModified { at }),
            (416, Some(ContentRange::Unsatisfied { total })) => {
                Err(Self::RangeNotSatisfiable { at, total: Some(total) })
            }
            (416, _) => Err(Self::RangeNotSatisfiable { at, total: None }),
            (status, _) => Err(Self::Status {
                at,
                status,
                reason: head.reason().escape_debug().to_string().into(),
                explanation: None,
                unspoken_login: asks_unspoken_login(head),
                retry_after: head.retry_after(SystemTime::now()),
            }),
        }
    }
}

impl From<ConnectError> for HttpError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Cancelled => Self::Cancelled,
            error => Self::Connect(error),
        }
    }
}

/// The URLs of a chain of redirects.
#[derive(Debug)]
pub struct Chain(pub Vec<SafeUrl>);

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A long chain repeats itself; its start is enough.
        let shown = self.0.iter().take(8).map(SafeUrl::to_string).collect::<Vec<_>>();
        write!(f, "{}", shown.join(" -> "))?;
        if self.0.len() > shown.len() { write!(f, " -> ... ({} in all)", self.0.len()) } else { Ok(()) }
    }
}

/// Fails once the deadline has passed or the transfer is cancelled; `step` completes "did not finish ...".
pub(super) fn check(deadline: &Deadline<'_>, at: &UrlAndPeer, step: &'static str) -> Result<(), HttpError> {
    deadline.check_cancel()?;
    if deadline.left().is_zero() {
        return Err(HttpError::Timeout { at: at.clone(), step, waited: deadline.limit });
    }
    Ok(())
}

/// Joins the meaning of a refusal and its remedy to the end of a message; either may be empty.
pub(crate) fn explained(meaning: &str, remedy: &str, unspoken_login: bool) -> String {
    let remedy = if unspoken_login { UNSPOKEN_LOGIN } else { remedy };
    let parts = [(": ", meaning), ("; ", remedy)].into_iter().filter(|(_, text)| !text.is_empty());
    parts.map(|(mark, text)| format!("{mark}{text}")).collect()
}

/// Returns whether a server refuses a request by this status only because it serves too many.
pub(crate) fn is_too_busy(status: u16) -> bool {
    matches!(status, 429 | 503)
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
pub(crate) fn asks_unspoken_login(head: &ResponseHead) -> bool {
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
