//! Errors of an FTP or GridFTP source; every message names the operation, the URL or host, and a
//! remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::Malformed;
use longhaul_core::proto::gridftp::{LedgerError, Reply};
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::source::http::{HttpError, of_tls, tls_explained, unusable_url};

/// An error of an FTP or GridFTP source. Each variant is one that a caller treats in its own way;
/// all others are [`Failed`](Self::Failed).
#[derive(Debug, Error)]
pub(crate) enum FtpError {
    /// A command cannot be encoded.
    #[error("cannot ask {at} for this file: {source}")]
    Command { at: String, source: Malformed },
    /// A command could not be sent.
    #[error("cannot send a command to {at}: {source}")]
    Send { at: String, source: io::Error },
    /// The control connection broke.
    #[error("cannot receive a reply from {at}: {source}")]
    Receive { at: String, source: io::Error },
    /// The control connection was closed.
    #[error("{at} closed the control connection")]
    Closed { at: String },
    /// A reply did not arrive in time.
    #[error("{at} did not finish {step} within {waited:?}; {remedy}")]
    Timeout { at: String, step: &'static str, waited: Duration, remedy: &'static str },
    /// TLS failed: the certificate is not trusted, or the ends have no common parameters.
    #[error("cannot set up TLS with {at}: {why}")]
    Tls { at: String, why: String },
    /// The login was refused.
    #[error("{at} refused the login of '{user}': {reply}{}", hint("PASS", .reply))]
    Login { at: String, user: String, reply: Reply },
    /// The server accepts no further connection for now.
    #[error("{at} serves no further connection for now: {reply}")]
    Busy { at: String, reply: Reply },
    /// A command failed.
    #[error("{at} refused {verb}: {reply}{}", hint(.verb, .reply))]
    Refused { at: String, verb: &'static str, reply: Reply },
    /// The address for data connections cannot be used.
    #[error("cannot open a data connection to {at}: {source}")]
    Passive { at: String, source: Malformed },
    /// The server did not connect to this host.
    #[error("{at} opened no data connection to {local} within {waited:?}")]
    NotConnected { at: String, local: SocketAddr, waited: Duration },
    /// A data connection broke.
    #[error("cannot receive from {at} over a data connection: {source}")]
    Data { at: String, source: io::Error },
    /// A data connection ended early.
    #[error("{at} closed a data connection early, after {got}")]
    ClosedEarly { at: String, got: Bytes },
    /// The blocks of a chunk contradict each other or the request, so that any byte of the chunk
    /// may be wrong.
    #[error(transparent)]
    WrongData(Failure),
    /// The chunk that a data connection belongs to is unknown.
    #[error(
        "{at} opened new data connections for a chunk that was requested ahead; chunks are requested one by one from now on"
    )]
    OpenedAnew { at: String },
    /// Any other failure, also of the stream.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// What Globus reports by 500 where it cannot open a data connection, which is 425 in RFC 959.
const UNREACHED: [&str; 5] =
    ["connection refused", "onnect() failed", "timed out", "unreachable", "no route"];

impl FtpError {
    /// Creates the error of a URL that cannot be used; `why` names the reason and a remedy.
    pub(super) fn url(url: &str, why: &str) -> Self {
        unusable_url(&url, why).into()
    }

    /// Creates the error of an unexpected reply or data.
    pub(super) fn unrequested(at: &str, what: &str) -> Self {
        Self::WrongData(Failure::new(FailureKind::Protocol, format!("{at} sent {what} without a request")))
    }

    /// Creates the error of the blocks of a chunk. Missing bytes may arrive over another
    /// connection.
    pub(super) fn of_ledger(at: &str, source: &LedgerError) -> Self {
        let failure = unusable_data(at, source);
        match source {
            LedgerError::Incomplete(_) => failure.with_retry(Retry::Backoff).into(),
            LedgerError::Contradiction(_) => Self::WrongData(failure),
        }
    }

    /// Creates the error of a step that took too long.
    pub(super) fn timeout(at: &str, step: &'static str, waited: Duration) -> Self {
        Self::Timeout { at: at.to_owned(), step, waited, remedy: "try again later" }
    }

    /// Creates the error of a failed receive on the control connection; an error of TLS itself is
    /// explained.
    pub(super) fn of_receive(at: &str, source: io::Error) -> Self {
        let Some(tls) = of_tls(&source) else { return Self::Receive { at: at.to_owned(), source } };
        Self::Tls { at: at.to_owned(), why: tls_explained(tls, "ftp://") }
    }

    /// Creates the error of a data connection's failed TLS handshake. Only a certificate that this
    /// host does not accept is final.
    pub(super) fn of_handshake(at: &str, source: io::Error) -> Self {
        match of_tls(&source) {
            Some(tls @ (rustls::Error::InvalidCertificate(_) | rustls::Error::General(_))) => {
                Self::Tls { at: at.to_owned(), why: tls_explained(tls, "ftp://") }
            }
            _ => Self::Data { at: at.to_owned(), source },
        }
    }

    /// Creates the error of unusable TLS settings.
    pub(super) fn of_tls(at: &str, error: &rustls::Error) -> Self {
        Self::Tls { at: at.to_owned(), why: error.to_string() }
    }

    /// Returns the error of a control connection to `peer` that is not ready for use yet.
    pub(super) fn while_connecting(mut self, peer: SocketAddr) -> Self {
        if let Self::Timeout { at, remedy, .. } = &mut self {
            *at = format!("{at} ({peer})");
            *remedy = "check its port and scheme, or raise --connect-timeout";
        }
        self
    }

    /// Returns whether a failure other than those of the protocol has this cause.
    pub(super) fn is_caused_by(&self, cause: Cause) -> bool {
        matches!(self, Self::Failed(failure) if failure.cause == cause)
    }

    /// Returns whether a connection was accepted and not answered.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Closed { .. } | Self::Receive { .. })
    }

    /// Returns whether no reply can be received: the control connection is lost, or none can be
    /// opened.
    pub(super) fn loses_control(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Busy { .. } | Self::Login { .. })
            || self.is_caused_by(Cause::Unreachable)
            || self.is_silence()
    }

    /// Returns whether MODE E cannot be used: the server cannot reach this host, as behind a NAT,
    /// or refuses the mode.
    pub(super) fn rules_out_extended_mode(&self) -> bool {
        match self {
            Self::NotConnected { .. } => true,
            Self::Refused { verb: "ERET" | "RETR", reply, .. } => {
                reply.code == 425 || contains_any(reply, &UNREACHED)
            }
            // The server cannot connect to this address, or does not support MODE E despite its
            // features.
            Self::Refused { verb: "PORT" | "EPRT" | "MODE", reply, .. } => reply.is_permanent(),
            _ => false,
        }
    }
}

/// The file of logins or root certificates cannot be read.
impl From<HttpError> for FtpError {
    fn from(error: HttpError) -> Self {
        Failure::new(FailureKind::NotFound, error.to_string()).into()
    }
}

impl From<FtpError> for Failure {
    fn from(error: FtpError) -> Self {
        let message = error.to_string();
        let failed = |kind| Self::new(kind, message);
        match error {
            FtpError::Failed(failure) | FtpError::WrongData(failure) => failure,
            FtpError::Busy { .. } => failed(FailureKind::Unavailable).caused_by(Cause::Refused),
            FtpError::Refused { verb, reply, .. } => match kind_of(&reply) {
                // Globus reports a lost data connection by 500.
                kind @ FailureKind::Protocol
                    if reply.code == 500 && matches!(verb, "ERET" | "RETR" | "ESTO" | "STOR") =>
                {
                    failed(kind).with_retry(Retry::Backoff)
                }
                kind => failed(kind),
            },
            FtpError::Login { .. } => failed(FailureKind::Denied),
            FtpError::Command { .. } => failed(FailureKind::Usage),
            FtpError::Tls { .. } | FtpError::Passive { .. } => failed(FailureKind::Protocol),
            FtpError::Send { .. }
            | FtpError::Receive { .. }
            | FtpError::Closed { .. }
            | FtpError::Timeout { .. }
            | FtpError::Data { .. }
            | FtpError::ClosedEarly { .. }
            | FtpError::OpenedAnew { .. }
            | FtpError::NotConnected { .. } => failed(FailureKind::Temporary),
        }
    }
}

/// Creates the error of data that violates MODE E.
pub(super) fn unusable_data(at: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Protocol, format!("cannot use the data of {at}: {why}"))
}

/// Returns a remedy for a reply.
fn hint(verb: &str, reply: &Reply) -> &'static str {
    let kind = kind_of(reply);
    // Some servers accept an anonymous login, and refuse what follows it.
    if verb == "PASS" || reply.code == 530 {
        return "; give a login with --user, in the URL or in ~/.netrc";
    }
    if matches!(verb, "STOR" | "ESTO" | "RNTO") {
        return match kind {
            FailureKind::NotFound => {
                ": the directory must exist there and be writable, and the name must not be that of a directory; create a \
                 directory with MKD, or send a whole one with put -r"
            }
            FailureKind::Denied => ": this login may not write there",
            FailureKind::Disk => ": make room there and run again",
            FailureKind::Temporary => ": try again later",
            _ => "",
        };
    }
    match kind {
        FailureKind::NotFound => ": check the URL; a path of ftp:// is relative to the login's directory",
        FailureKind::Temporary => ": try again later",
        _ => "",
    }
}

/// Returns the kind of a refusal.
fn kind_of(reply: &Reply) -> FailureKind {
    match reply.code {
        _ if contains_any(reply, &["permission denied", "not permitted", "access denied"]) => {
            FailureKind::Denied
        }
        _ if contains_any(reply, &["no such file", "not found", "does not exist"]) => FailureKind::NotFound,
        452 | 552 => FailureKind::Disk,
        _ if contains_any(reply, &["no space left", "disk full", "quota exceeded"]) => FailureKind::Disk,
        _ if contains_any(reply, &["is a directory"]) => FailureKind::NotFound,
        421 | 425 | 426 | 450 | 451 => FailureKind::Temporary,
        _ if reply.is_transient() => FailureKind::Temporary,
        530..=532 | 534 | 535 => FailureKind::Denied,
        550 | 553 => FailureKind::NotFound,
        _ => FailureKind::Protocol,
    }
}

/// Returns whether a reply contains one of these texts, ignoring case.
fn contains_any(reply: &Reply, texts: &[&str]) -> bool {
    reply.lines.iter().any(|line| {
        let line = line.to_ascii_lowercase();
        texts.iter().any(|text| line.contains(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_classified_by_text_or_code() {
        for (verb, code, text, kind, retry) in [
            ("SIZE", 550, "f: No such file or directory", FailureKind::NotFound, false),
            ("RETR", 550, "Failed to open file.", FailureKind::NotFound, false),
            ("RETR", 550, "f: Permission denied", FailureKind::Denied, false),
            ("ERET", 500, "open error: No such file or directory", FailureKind::NotFound, false),
            ("ERET", 500, "an end-of-file was reached", FailureKind::Protocol, true),
            ("RETR", 451, "Local error", FailureKind::Temporary, true),
            ("TYPE", 504, "no", FailureKind::Protocol, false),
        ] {
            let reply = Reply { code, lines: vec![text.to_owned()] };
            let error = Failure::from(FtpError::Refused { at: "ftp://h/f".into(), verb, reply });
            assert_eq!((error.kind, error.retry == Retry::Backoff), (kind, retry), "{error}");
        }
    }

    #[test]
    fn each_error_has_a_kind_a_retry_and_a_cause() {
        let at = || "ftp://h/f".to_owned();
        let reply = || Reply { code: 421, lines: vec!["full".to_owned()] };
        let late = FtpError::timeout(&at(), "its greeting", Duration::from_secs(1));
        let channels = LedgerError::channels(1, 2);
        for (error, kind, retry, cause, part) in [
            (
                FtpError::Busy { at: at(), reply: reply() },
                FailureKind::Unavailable,
                Retry::Backoff,
                Cause::Refused,
                "421",
            ),
            (
                FtpError::Login { at: at(), user: "u".to_owned(), reply: reply() },
                FailureKind::Denied,
                Retry::Never,
                Cause::Connection,
                "--user",
            ),
            (
                late.while_connecting(([127, 0, 0, 1], 21).into()),
                FailureKind::Temporary,
                Retry::Backoff,
                Cause::Connection,
                "ftp://h/f (127.0.0.1:21) did not finish its greeting within 1s; check its port",
            ),
            (
                FtpError::of_ledger(&at(), &channels),
                FailureKind::Protocol,
                Retry::Backoff,
                Cause::Connection,
                "",
            ),
            (
                FtpError::of_ledger(&at(), &LedgerError::Contradiction("twice".to_owned())),
                FailureKind::Protocol,
                Retry::Never,
                Cause::Connection,
                "",
            ),
            (
                Failure::interrupted().into(),
                FailureKind::Interrupted,
                Retry::Never,
                Cause::Interrupted,
                "cancelled",
            ),
        ] {
            let failure = Failure::from(error);
            assert_eq!((failure.kind, failure.retry, failure.cause), (kind, retry, cause), "{failure}");
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
