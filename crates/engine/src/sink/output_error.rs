//! Errors of writing a file.

use std::io;
use std::path::PathBuf;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use thiserror::Error;

/// The reason why the output could not be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The directory is missing, read-only, or refuses the file.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The temporary file or its directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The target's name is that of a directory.
    #[error("cannot write {0}: it is a directory; give another name")]
    IsDirectory(PathBuf),
    /// The target is a device, a pipe or a socket.
    #[error("cannot write {0}: it is not a regular file; give another name, or write to it with -o - >{0}")]
    NotAFile(PathBuf),
    /// A file of the name given by the server or the URL exists.
    #[error(
        "{0} exists; remove it, replace it with -N where the server's is newer, or fetch this file alone with -o {0} to replace it"
    )]
    Exists(PathBuf),
    /// Another transfer is writing this file.
    #[error("{0} is being written by another transfer; wait for it, or give another name with -o")]
    Busy(PathBuf),
    /// The journal of an earlier run cannot be read.
    #[error("cannot read the journal {path}: {source}; make it readable, or start over with --no-resume")]
    Journal {
        /// The journal.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The disk has not enough space for the file.
    #[error("cannot reserve {size} ({bytes} bytes) for {path}: {source}; free some space or write elsewhere", bytes = size.get())]
    Reserve {
        /// The temporary file.
        path: PathBuf,
        /// The file's size.
        size: Bytes,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file system does not support the chosen writer.
    #[error("cannot write {path} with --writer {writer}: {source}")]
    Writer {
        /// The temporary file.
        path: PathBuf,
        /// The writer's name.
        writer: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Another program changed the partial file during the transfer, so that the received bytes are
    /// useless.
    #[error(
        "{path} was {change} by another program during the transfer: nothing is kept; run again to start over"
    )]
    PartChanged {
        /// The partial file.
        path: PathBuf,
        /// The change, as a participle.
        change: String,
    },
    /// A write, a sync or the final rename failed.
    #[error("cannot {operation} {path}: {source}{}", remedy(.source))]
    Write {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A failure that is not the kernel's.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl OutputError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Reserve { .. } | Self::Write { .. } | Self::PartChanged { .. } => FailureKind::Disk,
            Self::Failed(failure) => failure.kind,
            _ => FailureKind::CannotCreate,
        }
    }
}

/// Returns a remedy for an error of the kernel, if known.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space or write elsewhere",
        _ => "",
    }
}
