//! Errors of an FTP or GridFTP source; every message names the operation, the URL or host, and a remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::gridftp::{BlockError, CommandError, LedgerError, PassiveError, Reply, ReplyError};
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use thiserror::Error;

use super::gsi::GsiError;
use crate::connect::ConnectError;
use crate::source::http::{HttpError, of_tls, tls_explained};

/// An error of an FTP or GridFTP source.
#[derive(Debug, Error)]
pub(crate) enum FtpError {
    /// The URL is not usable.
    #[error("cannot use the URL {url}: {why}")]
    Url { url: String, why: &'static str },
    /// The host was not reached.
    #[error(transparent)]
    Connect(ConnectError),
    /// The file of logins or root certificates cannot be read.
    #[error(transparent)]
    File(#[from] HttpError),
    /// A command cannot be encoded.
    #[error("cannot ask {at} for this file: {source}")]
    Command { at: String, source: CommandError },
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
    #[error("{at} did not finish {step} within {waited:?}; try again later")]
    Timeout { at: String, step: &'static str, waited: Duration },
    /// A control connection was not ready for use in time.
    #[error(
        "{at} did not finish {step} within {waited:?}; check its port and scheme, or raise --connect-timeout"
    )]
    ConnectTimeout { at: String, step: &'static str, waited: Duration },
    /// A data connection was not ready for use in time.
    #[error(
        "{at} did not finish the TLS handshake of a data connection ({peer}) within {waited:?}; try again later, or set \
         --connect-timeout to more"
    )]
    HandshakeTimeout { at: String, peer: SocketAddr, waited: Duration },
    /// The received bytes are not a reply.
    #[error("cannot use the reply of {at}: {source}; is this the right port and scheme?")]
    Reply { at: String, source: ReplyError },
    /// TLS failed: the certificate is not trusted, or the ends have no common parameters.
    #[error("cannot set up TLS with {at}: {why}")]
    Tls { at: String, why: String },
    /// Authentication by certificates failed, or the protected control connection is broken.
    #[error(transparent)]
    Gsi(#[from] GsiError),
    /// The server does not encrypt.
    #[error("{at} does not encrypt {what}: {reply}; {remedy}")]
    NotEncrypted { at: String, what: &'static str, reply: Reply, remedy: &'static str },
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
    Passive { at: String, source: PassiveError },
    /// Listening failed at every address.
    #[error("cannot listen for data connections at {local}: {source}")]
    Listen { local: SocketAddr, source: io::Error },
    /// The server did not connect to this host.
    #[error("{at} opened no data connection to {local} within {waited:?}")]
    NotConnected { at: String, local: SocketAddr, waited: Duration },
    /// A data connection broke.
    #[error("cannot receive from {at} over a data connection: {source}")]
    Data { at: String, source: io::Error },
    /// A data connection ended early.
    #[error("{at} closed a data connection early, after {got}")]
    ClosedEarly { at: String, got: Bytes },
    /// The server sent more than the range or the file holds.
    #[error("{at} sent more than the {expected} that were requested")]
    TooMuch { at: String, expected: Bytes },
    /// A block violates MODE E.
    #[error("cannot use the data of {at}: {source}")]
    Block { at: String, source: BlockError },
    /// Blocks contradict each other or the request.
    #[error("cannot use the data of {at}: {source}")]
    Ledger { at: String, source: LedgerError },
    /// The server sent an unexpected reply or data.
    #[error("{at} sent {what} without a request")]
    Unrequested { at: String, what: String },
    /// The chunk that a data connection belongs to is unknown.
    #[error(
        "{at} opened new data connections for a chunk that was requested ahead; chunks are requested one by one from now on"
    )]
    OpenedAnew { at: String },
    /// TLS on a data connection ended without its closing message, and no size shows the end of the file.
    #[error(
        "{at} ended a data connection without closing TLS, after {got}, and reports no size: bytes may be missing"
    )]
    Unclosed { at: String, got: Bytes },
    /// The file has changed.
    #[error(
        "{at} changed on the server during the transfer ({was} became {now}); use --no-resume to fetch the new file"
    )]
    Changed { at: String, was: String, now: String },
    /// The stream of the transfer has ended.
    #[error(transparent)]
    Stream(#[from] Failure),
    /// The transfer was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl From<ConnectError> for FtpError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Cancelled => Self::Cancelled,
            error => Self::Connect(error),
        }
    }
}

/// Returns a remedy for a reply.
fn hint(verb: &str, reply: &Reply) -> &'static str {
    let kind = FtpError::kind_of(reply);
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

impl FtpError {
    /// Returns whether a connection was accepted and not answered.
    pub(super) fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. } | Self::ConnectTimeout { .. } | Self::Closed { .. } | Self::Receive { .. }
        )
    }

    /// Creates the error of a failed receive on the control connection; an error of TLS itself is explained.
    pub(super) fn of_receive(at: &str, source: io::Error) -> Self {
        let Some(tls) = of_tls(&source) else { return Self::Receive { at: at.to_owned(), source } };
        Self::Tls { at: at.to_owned(), why: tls_explained(tls, "ftp://") }
    }

    /// Creates the error of a data connection's failed TLS handshake. Only a certificate that this host does not accept is final.
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
    pub(super) fn while_connecting(self, peer: SocketAddr) -> Self {
        match self {
            Self::Timeout { at, step, waited } => {
                Self::ConnectTimeout { at: format!("{at} ({peer})"), step, waited }
            }
            error => error,
        }
    }

    /// Returns whether no reply can be received: the control connection is lost, or none can be opened.
    pub(super) fn loses_control(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::Send { .. }
                | Self::Receive { .. }
                | Self::Closed { .. }
                | Self::Timeout { .. }
                | Self::ConnectTimeout { .. }
                | Self::Busy { .. }
                | Self::Login { .. }
        )
    }

    /// Returns whether MODE E cannot be used: the server cannot reach this host, as behind a NAT, or refuses the mode.
    pub(super) fn rules_out_extended_mode(&self) -> bool {
        match self {
            Self::NotConnected { .. } => true,
            Self::Refused { verb, reply, .. } => match *verb {
                // RFC 959: 425 is "can't open data connection". Globus reports this by 500 and its own texts.
                "ERET" | "RETR" => {
                    reply.code == 425
                        || contains_any(
                            reply,
                            &[
                                "connection refused",
                                "onnect() failed",
                                "timed out",
                                "unreachable",
                                "no route",
                            ],
                        )
                }
                // The server cannot connect to this address, or does not support MODE E despite its features.
                "PORT" | "EPRT" | "MODE" => reply.is_permanent(),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns whether the blocks of a chunk contradict each other or the request, so that any byte of the chunk may be
    /// wrong.
    pub(super) fn refutes_data(&self) -> bool {
        match self {
            Self::Block { .. } | Self::Unrequested { .. } => true,
            Self::Ledger { source, .. } => match source {
                LedgerError::Outside { .. }
                | LedgerError::Overlap(_)
                | LedgerError::AfterEnd(_)
                | LedgerError::Fragments => true,
                LedgerError::Missing { .. } | LedgerError::Channels { .. } => false,
            },
            _ => false,
        }
    }

    fn kind_of(reply: &Reply) -> FailureKind {
        match reply.code {
            _ if contains_any(reply, &["permission denied", "not permitted", "access denied"]) => {
                FailureKind::Denied
            }
            _ if contains_any(reply, &["no such file", "not found", "does not exist"]) => {
                FailureKind::NotFound
            }
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

    /// Returns the kind of the failure.
    pub(crate) fn kind(&self) -> FailureKind {
        match self {
            Self::Url { .. } | Self::Command { .. } => FailureKind::Usage,
            Self::Connect(error) => error.kind(),
            Self::File(_) => FailureKind::NotFound,
            Self::Send { .. }
            | Self::Receive { .. }
            | Self::Closed { .. }
            | Self::Timeout { .. }
            | Self::ConnectTimeout { .. }
            | Self::HandshakeTimeout { .. }
            | Self::Data { .. }
            | Self::ClosedEarly { .. }
            | Self::OpenedAnew { .. }
            | Self::Unclosed { .. }
            | Self::NotConnected { .. } => FailureKind::Temporary,
            Self::Reply { .. }
            | Self::Passive { .. }
            | Self::TooMuch { .. }
            | Self::Block { .. }
            | Self::Ledger { .. }
            | Self::Unrequested { .. }
            | Self::Tls { .. }
            | Self::NotEncrypted { .. } => FailureKind::Protocol,
            Self::Gsi(error) => error.kind(),
            Self::Login { .. } => FailureKind::Denied,
            Self::Busy { .. } => FailureKind::Unavailable,
            Self::Refused { reply, .. } => Self::kind_of(reply),
            Self::Listen { .. } => FailureKind::Host,
            Self::Changed { .. } => FailureKind::Data,
            Self::Stream(error) => error.kind,
            Self::Cancelled => FailureKind::Interrupted,
        }
    }

    /// Returns whether a retry can help.
    pub(crate) fn retry(&self) -> Retry {
        let kind = self.kind();
        match self {
            Self::Connect(error) => error.retry(),
            Self::Stream(error) => error.retry,
            // Globus reports a lost data connection by 500.
            Self::Refused {
                verb: "ERET" | "RETR" | "ESTO" | "STOR", reply: Reply { code: 500, .. }, ..
            } if kind == FailureKind::Protocol => Retry::Backoff,
            // Missing bytes may arrive over another connection.
            Self::Ledger { source: LedgerError::Missing { .. } | LedgerError::Channels { .. }, .. }
            | Self::Listen { .. } => Retry::Backoff,
            _ => kind.retry(),
        }
    }

    fn cause(&self) -> Cause {
        match self {
            Self::Stream(error) => error.cause,
            Self::Busy { .. } => Cause::Refused,
            Self::Changed { .. } => Cause::OtherFile,
            Self::Cancelled => Cause::Interrupted,
            Self::Connect(ConnectError::Thread { .. }) => Cause::Connection,
            Self::Connect(_) => Cause::Unreachable,
            _ => Cause::Connection,
        }
    }
}

/// Returns whether a reply contains one of these texts, ignoring case.
fn contains_any(reply: &Reply, texts: &[&str]) -> bool {
    reply.lines.iter().any(|line| {
        let line = line.to_ascii_lowercase();
        texts.iter().any(|text| line.contains(text))
    })
}

impl From<FtpError> for Failure {
    fn from(error: FtpError) -> Self {
        match error {
            FtpError::Stream(error) => error,
            error => {
                Self::new(error.kind(), error.to_string()).caused_by(error.cause()).with_retry(error.retry())
            }
        }
    }
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
}
