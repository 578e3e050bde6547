//! Errors of uploads.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::ranges::RangeSet;
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use thiserror::Error;

use super::answer::UploadAnswer;
use crate::send::SendError;
use crate::source::gridftp::FtpError;
use crate::source::http::{self, HttpError, UrlAndPeer, asks_unspoken_login, of_tls, send_error};
use crate::transfer::error::TransferError;

/// An error of an upload; a server that can resume keeps what it has received.
#[derive(Debug, Error)]
pub enum UploadError {
    /// The connection to the server, or the response, failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The FTP server, or the connection to it, failed.
    #[error(transparent)]
    Ftp(Failure),
    /// The source cannot be opened or read.
    #[error("cannot {operation} {}: {source}", .path.display())]
    Source {
        /// The operation.
        operation: &'static str,
        /// The source.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The source is not a file.
    #[error("cannot send {}: it is {what}", .path.display())]
    NotAFile {
        /// The source.
        path: PathBuf,
        /// The kind of object.
        what: &'static str,
    },
    /// The source's path ends without a name, and the URL in `/`.
    #[error("{} has no name to put it under: end the URL in one", .path.display())]
    NoName {
        /// The source.
        path: PathBuf,
    },
    /// Direct I/O was requested, but the source's file system does not support it.
    #[error("cannot read {} by Direct I/O: its file system has none; use --reader auto", .0.display())]
    NoDirectIo(PathBuf),
    /// The source changed while it was sent.
    #[error("{} changed while it was sent; run again once no program writes to it", .0.display())]
    Changed(PathBuf),
    /// The socket failed.
    #[error("sending to {at} failed: {source}; check the network and run again")]
    Send {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server refused a request.
    #[error("{at} refused {step}: {status} {reason}{}", advice(*.status, *.explained, *.unspoken_login))]
    Refused {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The refused step.
        step: &'static str,
        /// The status code.
        status: u16,
        /// The reason phrase and the server's explanation, escaped.
        reason: String,
        /// Whether the server gave an explanation.
        explained: bool,
        /// Whether the server asks for a login in no way that this program speaks.
        unspoken_login: bool,
        /// The server's Retry-After.
        retry_after: Option<Duration>,
    },
    /// The streams ended before the server had every range.
    #[error(transparent)]
    Streams(#[from] TransferError),
    /// The server has another part of the file than it reported before.
    #[error("{at} has another part of the file than it reported; run again to continue from there")]
    Moved {
        /// The URL and the peer.
        at: UrlAndPeer,
    },
    /// The bytes on the server differ from the source, even after repeated sending.
    #[error("{}", corrupted(at, ranges, *rounds))]
    Corrupted {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The wrong ranges.
        ranges: RangeSet,
        /// The number of rounds in which they were sent again.
        rounds: u32,
    },
    /// The server's answer contradicts the upload.
    #[error("cannot use the answer of {at}: {why}")]
    Answer {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The error.
        why: String,
    },
    /// The server acknowledged less than [`MIN_DELIVERY`](crate::delivery_meter::MIN_DELIVERY)
    /// within the timeout.
    #[error("{at} took nothing within {waited:?}: taken for dead; run again")]
    Stalled {
        /// The URL and the peer.
        at: UrlAndPeer,
        /// The timeout.
        waited: Duration,
    },
    /// The congestion control is not available in the kernel.
    #[error(
        "cannot use the congestion control '{name}': {source}; /proc/sys/net/ipv4/tcp_available_congestion_control lists those there are"
    )]
    Congestion {
        /// The name.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for {0}: {1}")]
    Thread(&'static str, io::Error),
    /// The thread that computes the digest ended without one, which is a bug.
    #[error("the digest was not computed: report this as a bug, and use --no-verify meanwhile")]
    NoDigest,
    /// The user interrupted the upload.
    #[error("interrupted; {}", match .resumable {
        Some(true) => "the server keeps what it has: run the same command to resume",
        Some(false) => "this server cannot resume",
        None => "nothing was sent yet",
    })]
    Interrupted {
        /// Whether the next run can resume; `None` if the server has not reported that yet.
        resumable: Option<bool>,
    },
}

impl UploadError {
    /// Creates the error of an answer that is not a success.
    pub(super) fn refused(at: &UrlAndPeer, step: &'static str, answer: &UploadAnswer) -> Self {
        let head = &answer.head;
        let phrase = head.reason().escape_debug();
        Self::Refused {
            at: at.clone(),
            step,
            status: head.status(),
            reason: answer
                .reason
                .as_ref()
                .map_or_else(|| phrase.to_string(), |why| format!("{phrase}: {why}")),
            explained: answer.reason.is_some(),
            unspoken_login: asks_unspoken_login(head),
            retry_after: head.retry_after(SystemTime::now()),
        }
    }

    /// Creates the error of a failed send.
    pub(super) fn of_send(error: SendError, at: &UrlAndPeer) -> Self {
        match error {
            SendError::Socket(source) if of_tls(&source).is_some() => send_error(source, at).into(),
            SendError::Socket(source) => Self::Send { at: at.clone(), source },
            SendError::Read { path, source } => Self::cannot_read(path, source),
            SendError::Changed { path } => Self::Changed(path),
        }
    }

    /// Creates the error of a failed read.
    pub(super) fn of_reading(error: SendError) -> Self {
        match error {
            SendError::Read { path, source } => Self::cannot_read(path, source),
            SendError::Changed { path } => Self::Changed(path),
            // Reading needs no socket.
            SendError::Socket(source) => Self::cannot_read(PathBuf::new(), source),
        }
    }

    pub(super) fn cannot_read(path: PathBuf, source: io::Error) -> Self {
        Self::Source { operation: "read", path, source }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        use FailureKind as Kind;
        match self {
            Self::Interrupted { .. } => Kind::Interrupted,
            Self::Http(error) => error.kind(),
            Self::Streams(error) => error.kind(),
            Self::Ftp(error) => error.kind,
            Self::Source { operation: "read", .. } => Kind::Disk,
            Self::Source { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Kind::Denied,
            Self::Source { .. } | Self::NotAFile { .. } => Kind::NotFound,
            Self::NoName { .. } | Self::NoDirectIo(_) | Self::Congestion { .. } => Kind::Usage,
            Self::Changed(_) | Self::Corrupted { .. } => Kind::Data,
            Self::Refused { status, .. } => kind_of_status(*status),
            Self::Answer { .. } => Kind::Protocol,
            Self::Send { .. } | Self::Stalled { .. } | Self::Moved { .. } => Kind::Temporary,
            Self::Thread(..) => Kind::Host,
            Self::NoDigest => Kind::Internal,
        }
    }

    /// Returns whether the server takes no files at all, however long it is tried.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Refused { status: 405 | 501 | 505, .. })
    }

    /// Returns whether the attempt failed before a connection was established. If none was before either, the command ends without a retry.
    pub(super) fn is_before_connection(&self) -> bool {
        match self {
            Self::Http(error) => error.is_before_connection(),
            Self::Ftp(error) => error.cause == Cause::Unreachable,
            _ => false,
        }
    }

    /// Returns whether a retry can help.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Http(error) => error.retry(),
            Self::Ftp(error) => error.retry,
            // The streams have retried.
            Self::Streams(_) => Retry::Never,
            Self::Refused { status, retry_after, .. } => Retry::of_status(*status, *retry_after),
            error => error.kind().retry(),
        }
    }
}

impl From<FtpError> for UploadError {
    fn from(error: FtpError) -> Self {
        let mut error = Failure::from(error);
        match error.kind {
            FailureKind::Interrupted => return HttpError::Cancelled.into(),
            // The missing object is the directory in which to create the file.
            FailureKind::NotFound => error.kind = FailureKind::CannotCreate,
            _ => {}
        }
        Self::Ftp(error)
    }
}

/// Converts an error of one connection to that of a stream.
impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Self {
        let error = match error {
            UploadError::Http(error) => return error.into(),
            error => error,
        };
        let retry = error.retry();
        let cause = match &error {
            UploadError::Refused { status, .. } if http::is_too_busy(*status) => Cause::Refused,
            // Another stream could not read the source or satisfy the server either.
            _ if retry == Retry::Never => Cause::EveryStream,
            _ => Cause::Connection,
        };
        Self::new(error.kind(), error.to_string()).caused_by(cause).with_retry(retry)
    }
}

fn corrupted(at: &UrlAndPeer, ranges: &RangeSet, rounds: u32) -> String {
    if ranges.total() == Bytes::ZERO {
        return format!(
            "{at} refuses the file's digest, although the digests of all pieces agree, after {rounds} attempts; the memory of one side changes \
             bytes: check it and run again"
        );
    }
    format!(
        "{at} has other bytes than were sent in {ranges}, after {rounds} attempts to send them again; the network, or the memory or disk of \
         one side, changes bytes: check them and run again, which sends only these"
    )
}

/// Returns the kind of a refused upload.
fn kind_of_status(status: u16) -> FailureKind {
    use FailureKind as Kind;
    match status {
        404 | 409 | 410 | 413 | 414 => Kind::CannotCreate,
        422 => Kind::Data,
        423 => Kind::Temporary,
        507 => Kind::Disk,
        405 => Kind::Unavailable,
        _ => Kind::of_status(status),
    }
}

/// Returns the likely meaning of a status, unless the server `has_explained` it, and a remedy.
fn advice(status: u16, has_explained: bool, unspoken_login: bool) -> String {
    let meaning = if has_explained { "" } else { meaning(status) };
    http::explained(meaning, remedy(status), unspoken_login)
}

/// Returns the likely meaning of a status.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "the server did not understand; is this the right port and scheme?",
        403 => "this name may not be written there; choose another",
        404 | 409 | 410 => {
            "the directory must exist on the server, and the name must not be that of a directory"
        }
        405 | 501 => "this server takes no files; start `longhaul serve --writable`, or allow PUT there",
        413 => "the server takes only smaller files; raise its limit",
        414 => "the name is too long",
        422 => "what arrived is not what was sent, and is dropped",
        423 => "another upload to this name is under way",
        507 => "the server's disk is full",
        _ => "",
    }
}

/// Returns the remedy for a status.
fn remedy(status: u16) -> &'static str {
    match status {
        401 => "give the server's token with --token FILE, or a login with --user or in ~/.netrc",
        414 => "choose a shorter name",
        422 => "run again",
        423 => "wait for its end, or choose another name",
        507 => "make room there and run again",
        // Its meaning names the remedy.
        501 => "",
        _ => http::remedy(status),
    }
}

/// Formats a number of bytes for errors.
pub(super) fn of_bytes(found: Option<Bytes>) -> String {
    found.map_or_else(|| "an unknown number of".to_owned(), |found| found.get().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_a_remedy_and_a_kind() {
        let refused = |status: u16, explained| UploadError::Refused {
            at: UrlAndPeer {
                url: crate::source::http::SafeUrl::of(&"http://h/f".parse().unwrap()),
                peer: ([127, 0, 0, 1], 80).into(),
            },
            step: "the upload",
            status,
            reason: "No".into(),
            explained,
            unspoken_login: false,
            retry_after: None,
        };
        for status in [400, 401, 403, 404, 405, 407, 409, 413, 414, 422, 423, 500, 501, 503, 507] {
            let text = refused(status, false).to_string();
            let is_explained = [": ", "; "].iter().any(|mark| text.contains(&format!(" {status} No{mark}")));
            assert!(is_explained, "{text}");
        }
        for (status, end) in [
            (423, " 423 No; wait for its end, or choose another name"),
            (403, " 403 No"),
            (414, " 414 No; choose a shorter name"),
        ] {
            assert!(refused(status, true).to_string().ends_with(end), "{status}");
        }
        assert_eq!(refused(414, true).kind(), FailureKind::CannotCreate);
        assert_eq!(refused(503, false).retry(), Retry::Backoff);
        for status in [401, 403, 409, 413, 423, 501, 507] {
            assert_eq!(refused(status, false).retry(), Retry::Never, "{status}");
        }
        let (mut busy, wait) = (refused(503, true), std::time::Duration::from_secs(9));
        if let UploadError::Refused { retry_after, .. } = &mut busy {
            *retry_after = Some(wait);
        }
        assert_eq!(busy.retry(), Retry::After(wait));
    }
}
