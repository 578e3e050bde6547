//! Why a transfer failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::checksum::Checksum;
use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::failure::FailureKind;
use crate::sink::output_error::OutputError;
use crate::sink::pipeline::PipelineError;

/// What a source reports instead of bytes: a class for the exit code, and whether another try can help.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct SourceError {
    /// The class of the error.
    pub class: FailureKind,
    /// Whether another try can help.
    pub retry: Retry,
    /// What the error says about the server, for the number of streams.
    pub cause: Cause,
    message: String,
}

/// Whether another try can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It cannot.
    Never,
    /// It can, after a backoff.
    Backoff,
    /// It can, after at least this time, which the server asks for.
    After(Duration),
    /// It can at once, and does not count as a failure.
    AtOnce,
}

/// What an error says about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The server serves no further connection for now.
    Refused,
    /// The server could not be reached at all.
    Unreachable,
    /// Another stream has stolen all leases of this one, or the transfer ends.
    Interrupted,
    /// The file is not the one that the transfer began with.
    OtherFile,
    /// The file is not newer than the one that is there.
    NotModified,
    /// Every stream of the source fails by it.
    EveryStream,
    /// This host lacks memory.
    Memory,
    /// The connection or its answer failed.
    Connection,
}

impl SourceError {
    /// Makes one; `message` names the operation and the address.
    pub fn new(class: FailureKind, retry: Retry, cause: Cause, message: impl Into<String>) -> Self {
        Self { class, retry, cause, message: message.into() }
    }

    /// Makes the error of a stream whose leases were stolen, or whose transfer ends.
    pub fn interrupted() -> Self {
        Self::new(FailureKind::Interrupted, Retry::Backoff, Cause::Interrupted, "cancelled")
    }

    /// Returns whether the server, or the way to it, has failed: not the file, and not this transfer.
    pub(crate) fn is_of_server(&self) -> bool {
        !matches!(self.cause, Cause::OtherFile | Cause::EveryStream | Cause::Interrupted)
            && self.retry != Retry::AtOnce
    }

    /// Makes the error of a source that has not described the file in time.
    pub(crate) fn unanswered(shown: &str, limit: Duration) -> Self {
        let message = format!("{shown} has not described the file within {} s", limit.as_secs());
        Self::new(FailureKind::Temporary, Retry::Backoff, Cause::Connection, message)
    }

    /// Puts into words that another stream has stolen all leases of this one.
    pub(crate) fn stolen(shown: &str) -> Self {
        let message = format!("{shown} sent too little over this connection: another stream has taken over");
        Self::new(FailureKind::Temporary, Retry::Backoff, Cause::Interrupted, message)
    }

    /// Describes a connection that delivered next to nothing.
    pub(crate) fn stalled(shown: &str, least: Bytes, waited: Duration) -> Self {
        let message =
            format!("{shown} sent less than {least} within {waited:?}: taken for dead; run again to resume");
        Self::new(FailureKind::Temporary, Retry::Backoff, Cause::Connection, message)
    }

    /// Describes a thread that ended by a fault of this program.
    pub(crate) fn panicked(what: &str) -> Self {
        let message = format!("{what} failed: report this as a bug");
        Self::new(FailureKind::Internal, Retry::Never, Cause::EveryStream, message)
    }

    /// Describes a lack of memory for a segment.
    pub(crate) fn memory(source: &io::Error) -> Self {
        let message = format!(
            "cannot allocate a segment of the application buffer: {source}; use a smaller --app-buffer"
        );
        Self::new(FailureKind::Host, Retry::Never, Cause::Memory, message)
    }
}

/// Why a transfer failed; what was fetched is kept wherever it can be used.
#[derive(Debug, Error)]
pub enum TransferError {
    /// The server, or the way to it.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The server offers another file than the one that a partial file is of.
    #[error(
        "{path} holds {kept} of another file: {was}; now the server sends {now}. Use --no-resume to give up what is there, or another \
         name with -o"
    )]
    OtherFile {
        /// The partial file.
        path: PathBuf,
        /// How much of it is there.
        kept: Bytes,
        /// What the partial file was begun as.
        was: String,
        /// What the server sends.
        now: String,
    },
    /// The file on the server is not newer than the one that is there, and only a newer one was asked for.
    #[error("the file is not newer on the server")]
    NotModified,
    /// The file is complete at its place already, which counts as a result there ([`JobOptions::accept_complete`]).
    ///
    /// [`JobOptions::accept_complete`]: crate::job::JobOptions::accept_complete
    #[error("{path} is there already")]
    AlreadyThere {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: Bytes,
    },
    /// Neither the URL nor a mirror of the file could be used.
    #[error("no source of the file can be used: {}", .0.join("; "))]
    NoSource(Vec<String>),
    /// A thread could not be started.
    #[error("cannot start a thread for {0}: {1}")]
    Thread(&'static str, io::Error),
    /// A thread panicked.
    #[error("an internal error ended {0}; what was committed is kept. Please report it")]
    Panicked(&'static str),
    /// The file was not completed, though no other error was reported: a defect of longhaul.
    #[error("{0}; what was committed is kept")]
    Internal(String),
    /// The digests of pieces are of another number than the file's pieces.
    #[error("{path} has another number of pieces than the metalink gives digests of: {there}, not {given}")]
    OtherPieces {
        /// The partial file.
        path: PathBuf,
        /// How many pieces it has.
        there: usize,
        /// How many digests are given.
        given: usize,
    },
    /// Pieces of the file are not what their digests say, whichever source they come from.
    #[error(
        "{path} has {pieces} pieces with other digests than {stated_by} states: {wrong}; they are fetched anew by the next run"
    )]
    WrongPieces {
        /// The partial file.
        path: PathBuf,
        /// How many.
        pieces: usize,
        /// Where they are.
        wrong: RangeSet,
        /// What the digests are from: the metalink, or a source without secrets.
        stated_by: String,
    },
    /// The digest is not the one asked for.
    #[error("{path} has the checksum {found}, not {wanted}{}; {fate}", if *.stated_by_server { ", as its server states" } else { "" })]
    Checksum {
        /// The partial file.
        path: PathBuf,
        /// What was asked for.
        wanted: Checksum,
        /// Whether the server states it, and not the user or a metalink.
        stated_by_server: bool,
        /// What was found.
        found: Checksum,
        /// What becomes of the partial file.
        fate: RefutedFate,
    },
    /// The user stopped the transfer.
    #[error("interrupted; {kept}")]
    Interrupted {
        /// What is kept.
        kept: Kept,
    },
}

/// What becomes of a complete file that has another checksum than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefutedFate {
    /// It is removed, as it could not be resumed.
    NothingKept,
    /// It has gone to a stream.
    Sent,
    /// It stays; a run that asks for the same checksum fetches it anew.
    FetchedAnew,
    /// It stays, for the source publishes the same digests of its pieces.
    SameAtSource,
}

impl std::fmt::Display for RefutedFate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NothingKept => "nothing is kept",
            Self::Sent => "all of it has gone to the stream: what reads it must throw it away",
            Self::FetchedAnew => {
                "it is kept for another try with the right checksum; the next run with the same one fetches it anew"
            }
            Self::SameAtSource => {
                "the server publishes the same digests of its pieces: the checksum is of another file. It is kept for another try \
                 with the right checksum"
            }
        })
    }
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
        match self {
            Self::Source(error) => error.class,
            Self::Output(
                OutputError::Reserve { .. }
                | OutputError::Write { .. }
                | OutputError::PartChanged { .. }
                | OutputError::Sent { .. },
            ) => FailureKind::Disk,
            Self::Output(_) => FailureKind::CannotCreate,
            Self::OtherFile { .. }
            | Self::Checksum { .. }
            | Self::OtherPieces { .. }
            | Self::WrongPieces { .. } => FailureKind::Data,
            // The command asked for a newer one.
            Self::NotModified | Self::AlreadyThere { .. } => FailureKind::NotFound,
            Self::NoSource(_) => FailureKind::Unavailable,
            Self::Thread(..) => FailureKind::Host,
            Self::Panicked(_) | Self::Internal(_) => FailureKind::Internal,
            Self::Interrupted { .. } => FailureKind::Interrupted,
        }
    }
}
