//! Errors of a transfer.

use std::path::PathBuf;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use thiserror::Error;

use crate::sink::output_error::OutputError;

/// An error of a transfer; usable bytes are kept.
#[derive(Debug, Error)]
pub enum TransferError {
    /// The output failed.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The partial file belongs to another file than the server's.
    #[error(transparent)]
    OtherFile(Failure),
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
    /// The server, the path to it or this host failed, the file is wrong, or the user interrupted
    /// the transfer.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl TransferError {
    /// Creates the error of a thread that panicked.
    pub(crate) fn panicked(whose: &str) -> Self {
        let message =
            format!("an internal error ended {whose}; what was committed is kept. Please report it");
        Failure::new(FailureKind::Internal, message).into()
    }

    /// Creates the error of a file that is incomplete or not verified without another one, which is
    /// a bug in longhaul.
    pub(crate) fn internal(why: &dyn std::fmt::Display) -> Self {
        Failure::new(FailureKind::Internal, format!("{why}; what was committed is kept")).into()
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Output(error) => error.kind(),
            // The command requested only a newer or absent file.
            Self::NotModified | Self::AlreadyThere { .. } => FailureKind::NotFound,
            Self::OtherFile(failure) | Self::Failed(failure) => failure.kind,
        }
    }
}
