//! What can be wrong with a record.

use std::io;
use std::path::PathBuf;

use super::schema::VERSION;

/// Why a record cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It cannot be created.
    #[error("cannot create the record {}: {source}", path.display())]
    Create {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else stands in its place, which must not be lost.
    #[error("{} is {what}, and no record: name another file for the record, or remove it", path.display())]
    Occupied {
        /// Where.
        path: PathBuf,
        /// What.
        what: &'static str,
    },
    /// Another transfer writes to it.
    #[error("another transfer writes the record {}: name another file", path.display())]
    Busy {
        /// The record.
        path: PathBuf,
    },
    /// There is no thread to write it.
    #[error("cannot start a thread for the record {}: {source}", path.display())]
    Thread {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Writing it has failed; it ends before.
    #[error("cannot write the record {}: {source}; what was written before can be used", path.display())]
    Write {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be opened or read.
    #[error("cannot read the record {}: {source}", path.display())]
    Read {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("the record {} is empty: the transfer has written nothing", path.display())]
    Empty {
        /// The record.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{} is no record of longhaul: {why}", path.display())]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// By what that is seen.
        why: String,
    },
    /// It was written by a later program.
    #[error(
        "the record {} is of version {found}, and this program reads up to version {VERSION}: update longhaul",
        path.display()
    )]
    Newer {
        /// The record.
        path: PathBuf,
        /// Its version.
        found: String,
    },
}

/// The kinds of [`RecordError`] that a caller tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordErrorKind {
    /// It cannot be created where it was asked for.
    CannotCreate,
    /// It cannot be written.
    Write,
    /// There is no such file, or none that may be read.
    NoInput,
    /// It is no record, or none that this program understands.
    Data,
    /// This host lacks threads.
    Host,
}

impl RecordError {
    /// Returns its kind.
    pub fn kind(&self) -> RecordErrorKind {
        match self {
            Self::Create { .. } | Self::Occupied { .. } | Self::Busy { .. } => RecordErrorKind::CannotCreate,
            Self::Write { .. } => RecordErrorKind::Write,
            Self::Read { .. } => RecordErrorKind::NoInput,
            Self::Empty { .. } | Self::NotARecord { .. } | Self::Newer { .. } => RecordErrorKind::Data,
            Self::Thread { .. } => RecordErrorKind::Host,
        }
    }
}
