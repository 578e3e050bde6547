//! Errors of plans and their state.

use std::io;
use std::path::{Path, PathBuf};

use longhaul_core::failure::{Failure, FailureKind};
use thiserror::Error;

use crate::plan::VERSION;

/// A plan or its state cannot be used.
#[derive(Debug, Error)]
pub enum FarmError {
    /// A file of the plan, or the target, cannot be read or written.
    #[error("cannot {operation} {}: {source}", .path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// There is no plan at the path.
    #[error("{} is no plan: make one by longhaul plan SOURCE... TARGET -o PLAN", .0.display())]
    NoPlan(PathBuf),
    /// A later version of this program has made the plan.
    #[error(
        "the plan {} is of version {version}, and this program knows {VERSION}: work with longhaul {made_by} or later",
        .path.display()
    )]
    Newer {
        /// The plan.
        path: PathBuf,
        /// The version of its format.
        version: u32,
        /// The version of the program that made it.
        made_by: String,
    },
    /// A file of the plan is not as it was written.
    #[error("the plan {} is damaged: {what}; make it again from its sources", .path.display())]
    Damaged {
        /// The plan.
        path: PathBuf,
        /// The file, and how it differs.
        what: String,
    },
    /// The limits of a plan were edited.
    #[error("{} holds no limits ({why}): remove it, and set them by longhaul plan limit", .path.display())]
    Limits {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The target of the plan is not on this host.
    #[error(
        "{} is missing: mount the target's file system on this host, or make the plan anew if the target was removed",
        .0.display()
    )]
    NoTarget(PathBuf),
    /// A local source cannot be read in its planned state.
    #[error("{0}")]
    Source(Failure),
    /// The name of the new plan is taken.
    #[error("{} exists: give the plan another name, or remove it", .0.display())]
    Exists(PathBuf),
    /// The sources have no file.
    #[error("the sources hold no file: nothing is planned")]
    Empty,
    /// Two files of the plan have one path.
    #[error("two files would get the path {}: leave one out, or name one with out= in a list (-i)", .0.display())]
    Twice(PathBuf),
    /// A file of the plan has the path of a directory of others.
    #[error(
        "a file and a directory would get the path {}: leave one out, or name the file with out= in a list (-i)",
        .0.display()
    )]
    FileAndDirectory(PathBuf),
    /// The plan would have more units than its format can number.
    #[error("more than {} units: plan larger ones, or several plans", u32::MAX)]
    TooLarge,
    /// The thread that renews the lease cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A thread of the worker has panicked.
    #[error("an internal error has ended the thread {0}: report it as a bug, and start the worker again")]
    Internal(&'static str),
}

impl FarmError {
    /// Creates the error of an operation on a file, for `map_err`.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { operation, path: path.to_owned(), source }
    }

    /// Returns whether no host can use the name: it is too long, it is a directory, or a directory
    /// of its path is a file.
    pub(crate) fn is_of_name(&self) -> bool {
        use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory};
        matches!(self, Self::Io { source, .. } if [InvalidFilename, IsADirectory, NotADirectory].contains(&source.kind()))
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                FailureKind::Denied
            }
            Self::Io { .. } => FailureKind::Disk,
            Self::NoPlan(_) | Self::NoTarget(_) => FailureKind::NotFound,
            Self::Newer { .. } | Self::Damaged { .. } | Self::Limits { .. } | Self::Empty => {
                FailureKind::Data
            }
            Self::Source(failure) => failure.kind,
            Self::Exists(_) => FailureKind::CannotCreate,
            Self::Twice(_) | Self::FileAndDirectory(_) | Self::TooLarge => FailureKind::Usage,
            Self::Thread(_) => FailureKind::Host,
            Self::Internal(_) => FailureKind::Internal,
        }
    }
}
