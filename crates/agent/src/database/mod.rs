//! The queue on disk: SQLite with a write-ahead log, synced at each commit, so that what was acknowledged survives a power loss.

mod open;
mod row;
mod rows;
mod schema;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};
use thiserror::Error;

pub(crate) use open::Opened;
pub(crate) use row::{NewTransfer, PartIdentity, Row, RunEnd};
pub(crate) use rows::{Page, PageCursor};

/// The queue's database.
pub(crate) struct Database {
    connection: Connection,
}

/// What happened to the queue's database.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// A later version of this program has written it.
    #[error(
        "the queue {} is of a newer longhaul (schema {found}, this one knows {known}): use that version, or move the file away to \
         begin a new queue", .path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest that is known.
        known: i64,
    },
    /// It cannot be opened.
    #[error("cannot open the queue {}: {source}", .path.display())]
    Open {
        /// The database.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// A damaged database could not be moved aside.
    #[error("cannot move the damaged queue {} aside: {source}", .path.display())]
    Aside {
        /// The database.
        path: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// It cannot be read or written.
    #[error("cannot {operation} the queue: {source}")]
    Use {
        /// What was tried.
        operation: &'static str,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

impl DatabaseError {
    fn using(operation: &'static str) -> impl Fn(rusqlite::Error) -> Self {
        move |source| Self::Use { operation, source }
    }

    /// Returns whether the disk is full.
    pub(crate) fn is_full_disk(&self) -> bool {
        matches!(self, Self::Use { source, .. } if source.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }
}

impl Database {
    /// Opens the database at `path`, or makes it. A damaged one is moved aside, and a new one begins.
    ///
    /// # Errors
    /// [`DatabaseError::Newer`], [`DatabaseError::Open`].
    pub(crate) fn open(path: &Path, now: i64) -> Result<Opened, DatabaseError> {
        open::open(path, now)
    }
}

#[cfg(test)]
mod tests;
