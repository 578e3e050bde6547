//! The queue on disk: SQLite with a write-ahead log, synced at each commit (`open`), so that
//! acknowledged changes (`rows`) survive a power loss; or the queue of a farm in PostgreSQL
//! (`farm`), whose agents lease transfers (`lease`). Both run the same statements.

mod column;
mod farm;
mod farm_address;
mod farm_connection;
mod farm_listener;
mod insert;
mod lease;
mod open;
mod order;
mod page;
mod password_file;
mod row;
mod rows;
mod schema;

use std::fmt;
use std::path::{Path, PathBuf};

use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, ToSql};
use thiserror::Error;

use column::ResultRow;
pub(crate) use farm::FarmDatabase;
pub(crate) use farm_address::FarmAddress;
pub use farm_address::FarmDatabaseError;
pub(crate) use farm_listener::FarmChange;
pub(crate) use insert::MAX_ROWS;
pub(crate) use lease::{ClaimedTransfer, HeldTransfer};
pub(crate) use open::OpenedDatabase;
pub(crate) use page::{PageCursor, RowPage};
pub(crate) use row::{NewTransfer, PartIdentity, RunEnd, TransferRow};

/// The queue's database.
pub(crate) struct Database {
    /// The settings, and the transfers of an agent without a farm.
    connection: Connection,
    /// The transfers of the farm.
    farm: Option<FarmDatabase>,
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
    #[error("cannot {operation} the queue{}: {source}", if self.farm().is_some() { " of the farm" } else { "" })]
    Use {
        /// The operation.
        operation: &'static str,
        /// The error of the statement.
        source: StoreError,
    },
}

/// An error of a statement.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The database file cannot be used.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The database of the farm cannot be used.
    #[error(transparent)]
    Farm(#[from] FarmDatabaseError),
    /// The database holds a value of another version.
    #[error("{0}")]
    Unreadable(String),
}

impl StoreError {
    fn unreadable(column: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Unreadable(format!("the column {column}: {why}"))
    }
}

impl DatabaseError {
    fn using(operation: &'static str) -> impl Fn(StoreError) -> Self {
        move |source| Self::Use { operation, source }
    }

    /// Returns whether the disk is full.
    pub(crate) fn is_full_disk(&self) -> bool {
        let Self::Use { source: StoreError::Sqlite(error), .. } = self else { return false };
        error.sqlite_error_code() == Some(ErrorCode::DiskFull)
    }

    /// Returns the error of the farm's database, if it is one.
    pub(crate) fn farm(&self) -> Option<&FarmDatabaseError> {
        match self {
            Self::Use { source: StoreError::Farm(error), .. } => Some(error),
            _ => None,
        }
    }
}

impl Database {
    /// Opens or creates the database at `path`. A damaged one is moved aside and replaced by a new
    /// one.
    ///
    /// # Errors
    /// [`DatabaseError::Newer`], [`DatabaseError::Open`].
    pub(crate) fn open(path: &Path, now: i64) -> Result<OpenedDatabase, DatabaseError> {
        open::open(path, now)
    }

    /// Uses the transfers of a farm from now on; the settings are still those of the file.
    pub(crate) fn join(&mut self, farm: FarmDatabase) {
        self.farm = Some(farm);
    }

    /// Runs `run` in one transaction: all of its changes are stored, or none. Transactions do not
    /// nest.
    pub(crate) fn atomically<T, E: From<DatabaseError>>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let failed = |error| E::from(DatabaseError::using("change")(error));
        self.transaction_statement("BEGIN").map_err(failed)?;
        let mut transaction = OpenTransaction { database: self, is_committed: false };
        let done = run(transaction.database)?;
        transaction.database.transaction_statement("COMMIT").map_err(failed)?;
        transaction.is_committed = true;
        Ok(done)
    }

    fn transaction_statement(&self, statement: &str) -> Result<(), StoreError> {
        match &self.farm {
            Some(farm) => Ok(farm.transaction_statement(statement)?),
            None => Ok(self.connection.execute_batch(statement)?),
        }
    }

    /// Runs a statement with parameters `?1`, `?2` and so on; returns what `read` makes of its
    /// rows.
    fn query<T, C: FromIterator<T>>(
        &self,
        statement: &str,
        values: &[&dyn ToSql],
        read: impl Fn(&ResultRow<'_>) -> Result<T, StoreError>,
    ) -> Result<C, StoreError> {
        if let Some(farm) = &self.farm {
            return farm.query(statement, values)?.iter().map(|row| read(&ResultRow::Farm(row))).collect();
        }
        let mut statement = self.connection.prepare_cached(statement)?;
        statement.query_and_then(values, |row| read(&ResultRow::Sqlite(row)))?.collect()
    }

    /// Runs a statement that returns no rows; returns the number of changed rows.
    fn execute(&self, statement: &str, values: &[&dyn ToSql]) -> Result<u64, StoreError> {
        match &self.farm {
            Some(farm) => Ok(farm.execute(statement, values)?),
            None => Ok(self.connection.prepare_cached(statement)?.execute(values)? as u64),
        }
    }

    /// Reads one value, if there is one.
    fn value<T: FromSql>(&self, select: &str, values: &[&dyn ToSql]) -> Result<Option<T>, StoreError> {
        self.query(select, values, |row| row.get(0)).map(|values: Vec<_>| values.into_iter().next())
    }

    fn change(&self, statement: &str, values: &[&dyn ToSql]) -> Result<u64, DatabaseError> {
        self.execute(statement, values).map_err(DatabaseError::using("change"))
    }
}

/// A transaction that is rolled back unless it is committed: after an error, and by a panic.
struct OpenTransaction<'a> {
    database: &'a mut Database,
    is_committed: bool,
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        if !self.is_committed {
            // Fails where the connection is lost, which rolls back too.
            let _ = self.database.transaction_statement("ROLLBACK");
        }
    }
}

#[cfg(test)]
mod farm_tests;
#[cfg(test)]
mod tests;
