//! Errors of a transfer.

use std::io;
use std::path::PathBuf;

use longhaul_core::checksum::Checksum;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::sink::output_error::OutputError;
use crate::sink::pipeline::PipelineError;

/// An error of a transfer; usable bytes are kept.
#[derive(Debug, Error)]
pub enum TransferError {
    /// The server, or the path to it, failed.
    #[error(transparent)]
    Source(#[from] Failure),
    /// The output failed.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The partial file belongs to another file than the server's.
    #[error(
        "{path} holds {kept} of another file: {was}; now the server sends {now}; use --no-resume to give up what is there, or another \
         name with -o"
    )]
    OtherFile {
        /// The partial file.
        path: PathBuf,
        /// The bytes of the partial file.
        kept: Bytes,
        /// The file that the partial file belongs to.
        was: String,
        /// The file that the server sends.
        now: String,
    },
    /// The server's file is not newer than the local one, and only a newer one was requested.
    #[error("the file is not newer on the server")]
    NotModified,
    /// A complete file of this name already exists, which counts as the result
    /// ([`ExistingFilePolicy::accept_complete`]).
    ///
    /// [`ExistingFilePolicy::accept_complete`]: crate::job::ExistingFilePolicy::accept_complete
    #[error("{path} already exists")]
    AlreadyThere {
        /// The file.
        path: PathBuf,
        /// The size of the file.
        size: Bytes,
    },
    /// No source of the file can be used.
    #[error("no source of the file can be used: {}", .0.join("; "))]
    NoSource(Vec<String>),
    /// A thread could not be started.
    #[error("cannot start a thread for {0}: {1}")]
    Thread(&'static str, io::Error),
    /// A thread panicked.
    #[error("an internal error ended {0}; what was committed is kept. Please report it")]
    Panicked(&'static str),
    /// The file is incomplete without a reported error, which is a bug in longhaul.
    #[error("{0}; what was committed is kept")]
    Internal(String),
    /// The metalink has another number of piece digests than the file has pieces.
    #[error("{path} has another number of pieces than the metalink gives digests of: {there}, not {given}")]
    OtherPieces {
        /// The partial file.
        path: PathBuf,
        /// The number of pieces of the file.
        there: usize,
        /// The number of digests.
        given: usize,
    },
    /// Pieces of the file have wrong digests, and no source is left to fetch them from.
    #[error(
        "{path} has {pieces} pieces with other digests than {stated_by} states: {wrong}; they are fetched anew by the next run"
    )]
    WrongPieces {
        /// The partial file.
        path: PathBuf,
        /// The number of wrong pieces.
        pieces: usize,
        /// The wrong ranges.
        wrong: RangeSet,
        /// The origin of the digests, without secrets: the metalink or a source.
        stated_by: String,
    },
    /// The file's digest differs from the expected one.
    #[error("{path} has the checksum {found}, not {wanted}{}; {fate}", if *.stated_by_server { ", as its server states" } else { "" })]
    Checksum {
        /// The partial file.
        path: PathBuf,
        /// The expected digest.
        wanted: Checksum,
        /// Whether the server stated the expected digest, not the user or a metalink.
        stated_by_server: bool,
        /// The computed digest.
        found: Checksum,
        /// The fate of the partial file.
        fate: RefutedFate,
    },
    /// The user interrupted the transfer.
    #[error("interrupted; {kept}")]
    Interrupted {
        /// The bytes kept for a resume.
        kept: Kept,
    },
}

/// The fate of a complete file with a wrong checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefutedFate {
    /// The file is removed, because it could not be resumed.
    NothingKept,
    /// The file was already written to a stream.
    Sent,
    /// The file is kept; a run that expects the same checksum fetches it anew.
    FetchedAnew,
    /// The file is kept, because the source publishes the same piece digests.
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

/// The bytes that a failed transfer leaves on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// This many bytes, from which the next run continues.
    Resumable(Bytes),
    /// None: the server's answer does not allow detecting a change of the file later.
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
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Source(error) => error.kind,
            Self::Output(
                OutputError::Reserve { .. }
                | OutputError::Write { .. }
                | OutputError::PartChanged { .. }
                | OutputError::Sent { .. },
            ) => FailureKind::Disk,
            Self::Output(OutputError::TooLarge { .. })
            | Self::OtherFile { .. }
            | Self::Checksum { .. }
            | Self::OtherPieces { .. }
            | Self::WrongPieces { .. } => FailureKind::Data,
            Self::Output(_) => FailureKind::CannotCreate,
            // The command requested only a newer or absent file.
            Self::NotModified | Self::AlreadyThere { .. } => FailureKind::NotFound,
            Self::NoSource(_) => FailureKind::Unavailable,
            Self::Thread(..) => FailureKind::Host,
            Self::Panicked(_) | Self::Internal(_) => FailureKind::Internal,
            Self::Interrupted { .. } => FailureKind::Interrupted,
        }
    }
}
