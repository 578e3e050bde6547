//! Why a file could not be written.

use std::io;
use std::path::PathBuf;

use longhaul_core::units::Bytes;
use thiserror::Error;

use super::journal::JournalError;

/// Why the output could not be made.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The directory is missing, read-only, or refuses the file.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The temporary file or its directory.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The target's name is taken by a directory.
    #[error("cannot write {0}: it is a directory; give another name")]
    IsDirectory(PathBuf),
    /// The target is a device, a pipe or a socket.
    #[error(
        "cannot write {0}: it is not a regular file, and longhaul writes nothing else; give another name"
    )]
    NotAFile(PathBuf),
    /// A name that came from the server or the URL is taken.
    #[error(
        "{0} exists; remove it, replace it with -N where the server's is newer, or fetch this file alone with -o {0} to replace it"
    )]
    Exists(PathBuf),
    /// Another transfer is writing this file.
    #[error("{0} is being written by another longhaul; wait for it, or give another name with -o")]
    Busy(PathBuf),
    /// The journal of an earlier run cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The file does not fit.
    #[error("cannot reserve {size} ({bytes} bytes) for {path}: {source}; free some space or write elsewhere", bytes = size.get())]
    Reserve {
        /// The temporary file.
        path: PathBuf,
        /// Its size.
        size: Bytes,
        /// What the kernel says.
        source: io::Error,
    },
    /// The chosen writer cannot write here.
    #[error("cannot write {path} with --writer {writer}: {source}")]
    Writer {
        /// The temporary file.
        path: PathBuf,
        /// The writer's name.
        writer: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Bytes that turned out wrong, or of another state of the file, have gone to a stream.
    #[error(
        "cannot start over: {sent} have gone to {path} already, and are of no use; write to a file, which can be fetched again in parts"
    )]
    Sent {
        /// The stream.
        path: PathBuf,
        /// How much has gone there.
        sent: Bytes,
    },
    /// Another program has changed the partial file during the transfer; what was received is of no use.
    #[error(
        "{path} was {change} by another program during the transfer: nothing is kept; run again to start over"
    )]
    PartChanged {
        /// The partial file.
        path: PathBuf,
        /// What was done to it, as a participle.
        change: String,
    },
    /// A write, a sync or the final rename failed.
    #[error("cannot {operation} {path}: {source}{}", remedy(.source))]
    Write {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Returns what to do about an error of the kernel, where that is known.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space or write elsewhere",
        _ => "",
    }
}
