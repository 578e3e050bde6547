//! The queue on disk: SQLite with a write-ahead log, synced at each commit (`open`), so that acknowledged changes (`rows`)
//! survive a power loss.

mod open;
mod order;
mod page;
mod row;
mod rows;
mod schema;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};
use thiserror::Error;

pub(crate) use open::OpenedDatabase;
pub(crate) use page::{PageCursor, RowPage};
pub(crate) use row::{NewTransfer, PartIdentity, Row, RunEnd};

/// The queue's database.
pub(crate) struct Database {
    connection: Connection,
}

/// An error of the queue's database.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// A later version of this program has written the database.
    #[error(
        "the queue {} is of a newer longhaul (schema {found}, this one supports {known}): use that version, or move the file away to \
         begin a new queue", .path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The version found.
        found: i64,
        /// The latest supported version.
        known: i64,
    },
    /// The database cannot be opened.
    #[error("cannot open the queue {}: {source}", .path.display())]
    Open {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A damaged database could not be moved aside.
    #[error("cannot move the damaged queue {} aside: {source}", .path.display())]
    Aside {
        /// The database.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The database cannot be read or written.
    #[error("cannot {operation} the queue: {source}")]
    Use {
        /// The operation.
        operation: &'static str,
        /// The error of SQLite.
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
    /// Opens or creates the database at `path`. A damaged one is moved aside and replaced by a new one.
    ///
    /// # Errors
    /// [`DatabaseError::Newer`], [`DatabaseError::Open`].
    pub(crate) fn open(path: &Path, now: i64) -> Result<OpenedDatabase, DatabaseError> {
        open::open(path, now)
    }
}

#[cfg(test)]
mod tests;
