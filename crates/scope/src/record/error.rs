//! Errors of records.

use std::io;
use std::path::PathBuf;

use longhaul_core::failure::FailureKind;

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

impl RecordError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Create { .. } | Self::Occupied { .. } | Self::Busy { .. } => FailureKind::CannotCreate,
            Self::Write { .. } => FailureKind::Disk,
            Self::Read { .. } => FailureKind::NotFound,
            Self::Empty { .. } | Self::NotARecord { .. } | Self::Newer { .. } => FailureKind::Data,
            Self::Thread { .. } => FailureKind::Host,
        }
    }
}
