//! Why a transfer failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::proto::http::{RangeError, Validator};
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::failure::FailureKind;
use crate::sink::output_error::OutputError;
use crate::sink::pipeline::PipelineError;
use crate::source::http::{ErrorKind, HttpError, Retry};
use longhaul_core::checksum::Checksum;

/// Why a transfer failed; what was fetched is kept wherever it can be used.
#[derive(Debug, Error)]
pub enum TransferError {
    /// The server, or the way to it.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The file.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A 206 holds something else than was asked for.
    #[error("cannot use the answer of {url}: {source}")]
    Range {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        source: RangeError,
    },
    /// The file on the server is no longer the one that the transfer began with.
    #[error(
        "{url} changed on the server during the transfer ({was} became {now}); run again to fetch the new file"
    )]
    Changed {
        /// The file.
        url: String,
        /// What identified it at first.
        was: String,
        /// What identifies it now.
        now: String,
    },
    /// The server sent the whole file where a part was asked for, though it is unchanged.
    #[error("{0} answered a request for a part with the whole file; use --streams 1")]
    RangesIgnored(String),
    /// The same, perhaps because the server takes no If-Range; without one it may send the part.
    #[error("{0} answered a request for a part, if the file is unchanged, with the whole file")]
    IfRangeRefused(String),
    /// Next to nothing came.
    #[error("{url} sent less than {least} within {waited:?}: taken for dead; run again to resume")]
    Stalled {
        /// The file.
        url: String,
        /// What would have been enough.
        least: Bytes,
        /// How long it took.
        waited: Duration,
    },
    /// So little came that another stream has fetched the rest.
    #[error("{0} sent too little over this connection: another has taken over")]
    TakenOver(String),
    /// No memory for a segment.
    #[error("cannot allocate a segment of the application buffer: {0}; use a smaller --app-buffer")]
    Memory(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread for {0}: {1}")]
    Thread(&'static str, io::Error),
    /// The file was not completed, though no other error was reported: a defect of longhaul.
    #[error("{0}; what was committed is kept")]
    Internal(String),
    /// The digest is not the one asked for.
    #[error("{path} has the checksum {found}, not {wanted}; {}", if *.kept {
        "it is kept for another try with the right checksum, or use --no-resume to fetch it anew"
    } else {
        "nothing is kept"
    })]
    Checksum {
        /// The partial file.
        path: PathBuf,
        /// What was asked for.
        wanted: Checksum,
        /// What was found.
        found: Checksum,
        /// Whether the partial file stays.
        kept: bool,
    },
    /// The user stopped the transfer.
    #[error("interrupted; {kept}")]
    Interrupted {
        /// What is kept.
        kept: Kept,
    },
}

/// What a failed transfer leaves on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// So much, and the next run goes on from there.
    Resumable(Bytes),
    /// Nothing: the server gives no means to tell later that the file is still the same.
    Nothing,
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resumable(bytes) => write!(f, "{bytes} kept: run the same command to resume"),
            Self::Nothing => f.write_str("nothing kept: this file cannot be resumed"),
        }
    }
}

impl From<PipelineError> for TransferError {
    fn from(error: PipelineError) -> Self {
        match error {
            PipelineError::Output(error) => Self::Output(error),
            PipelineError::Thread(whose, error) => Self::Thread(whose, error),
            error @ (PipelineError::Panicked(_) | PipelineError::Hole { .. } | PipelineError::Failed(_)) => {
                Self::Internal(error.to_string())
            }
        }
    }
}

impl TransferError {
    /// Classifies the error.
    pub fn kind(&self) -> FailureKind {
        use FailureKind as Kind;
        match self {
            Self::Http(HttpError::Cancelled) | Self::Interrupted { .. } => Kind::Interrupted,
            Self::Http(error) => Kind::Http(error.kind()),
            Self::Output(OutputError::Reserve { .. } | OutputError::Write { .. }) => Kind::Disk,
            Self::Output(_) => Kind::CannotCreate,
            Self::Changed { .. } | Self::Checksum { .. } => Kind::Data,
            Self::Range { .. } | Self::RangesIgnored(_) | Self::IfRangeRefused(_) => {
                Kind::Http(ErrorKind::Protocol)
            }
            Self::Stalled { .. } | Self::TakenOver(_) => Kind::Temporary,
            Self::Memory(_) | Self::Thread(..) => Kind::Host,
            Self::Internal(_) => Kind::Internal,
        }
    }

    /// Says whether another connection can help.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Http(error) => error.retry(),
            Self::Stalled { .. } | Self::TakenOver(_) | Self::IfRangeRefused(_) => Retry::Now,
            _ => Retry::Never,
        }
    }

    /// Describes a change by what identified the file before and after it; `same` where only its size tells of it.
    pub(super) fn changed(url: String, was: Option<&Validator>, now: Option<&Validator>, same: bool) -> Self {
        let name = |v: Option<&Validator>| {
            v.map_or_else(|| "an unidentified state".to_owned(), Validator::to_string)
        };
        let (was, mut now) = (name(was), name(now));
        if was == now {
            // What is too weak to identify a state can still tell two apart.
            now.push_str(if same { " of another size" } else { " with another weak ETag or date" });
        }
        Self::Changed { url, was, now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_by_what_shows_it() {
        let tag = |text| Validator::parse(text);
        for (was, now, same, told) in [
            (tag("\"a\""), tag("\"b\""), false, "(\"a\" became \"b\")"),
            (tag("\"a\""), None, false, "(\"a\" became an unidentified state)"),
            (tag("\"a\""), tag("\"a\""), true, "(\"a\" became \"a\" of another size)"),
            (None, None, true, "(an unidentified state became an unidentified state of another size)"),
            (
                None,
                None,
                false,
                "(an unidentified state became an unidentified state with another weak ETag or date)",
            ),
        ] {
            let error = TransferError::changed("http://h/f".into(), was.as_ref(), now.as_ref(), same);
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
