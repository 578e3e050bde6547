//! Errors of records.

use std::io;
use std::path::PathBuf;

use super::schema::VERSION;

/// A record cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The record cannot be created.
    #[error("cannot create the record {}: {source}", path.display())]
    Create {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path holds something that is not a record and must not be overwritten.
    #[error("{} is {what}, and no record: name another file for the record, or remove it", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// A phrase that names what the path holds.
        what: &'static str,
    },
    /// Another transfer writes to the record.
    #[error("another transfer writes the record {}: name another file", path.display())]
    Busy {
        /// The record.
        path: PathBuf,
    },
    /// The writer thread cannot be started.
    #[error("cannot start a thread for the record {}: {source}", path.display())]
    Thread {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A write failed; the record ends before it.
    #[error("cannot write the record {}: {source}; what was written before can be used", path.display())]
    Write {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The record cannot be opened or read.
    #[error("cannot read the record {}: {source}", path.display())]
    Read {
        /// The record.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The record is empty.
    #[error("the record {} is empty: the transfer has written nothing", path.display())]
    Empty {
        /// The record.
        path: PathBuf,
    },
    /// The file is not a record.
    #[error("{} is no record of longhaul: {why}", path.display())]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// The evidence, in a phrase.
        why: String,
    },
    /// A later version of the program wrote the record.
    #[error(
        "the record {} is of version {found}, and this program reads up to version {VERSION}: update longhaul",
        path.display()
    )]
    Newer {
        /// The record.
        path: PathBuf,
        /// The record's version.
        found: String,
    },
}

/// Classes of [`RecordError`] with different exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordErrorKind {
    /// The record cannot be created.
    CannotCreate,
    /// The record cannot be written.
    Write,
    /// The file does not exist or is not readable.
    NoInput,
    /// The file is not a record, or is not supported.
    Data,
    /// The host is out of threads.
    Host,
}

impl RecordError {
    /// Returns the class of the error.
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
