//! The queue on disk: SQLite with a write-ahead log, synced at each commit (`open`), so that
//! acknowledged changes (`rows`) survive a power loss; or the queue of a farm in PostgreSQL
//! (`farm`), whose agents lease transfers (`lease`). Both run the same statements.

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
mod value;

use std::path::{Path, PathBuf};

use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode};
use thiserror::Error;

pub(crate) use farm::FarmDatabase;
pub(crate) use farm_address::FarmAddress;
pub use farm_address::FarmError;
pub(crate) use farm_listener::FarmChange;
pub(crate) use insert::MAX_ROWS;
pub(crate) use lease::{ClaimedTransfer, HeldTransfer, HostReport};
pub(crate) use open::OpenedDatabase;
pub(crate) use page::{PageCursor, RowPage};
pub(crate) use row::{NewTransfer, PartIdentity, Row, RunEnd};
use value::{Record, Value};

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
    #[error("cannot {operation} the queue: {source}")]
    Use {
        /// The operation.
        operation: &'static str,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The database holds a value of another version.
    #[error("cannot {operation} the queue: {why}")]
    Unreadable {
        /// The operation.
        operation: &'static str,
        /// What is unreadable.
        why: String,
    },
    /// The database of the farm cannot be used.
    #[error("cannot {operation} the queue of the farm: {source}")]
    Farm {
        /// The operation.
        operation: &'static str,
        /// The error.
        source: FarmError,
    },
}

/// An error of a statement.
#[derive(Debug)]
enum StoreError {
    Sqlite(rusqlite::Error),
    Farm(FarmError),
    Unreadable(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<FarmError> for StoreError {
    fn from(error: FarmError) -> Self {
        Self::Farm(error)
    }
}

impl DatabaseError {
    fn using(operation: &'static str) -> impl Fn(StoreError) -> Self {
        move |error| match error {
            StoreError::Sqlite(source) => Self::Use { operation, source },
            StoreError::Farm(source) => Self::Farm { operation, source },
            StoreError::Unreadable(why) => Self::Unreadable { operation, why },
        }
    }

    /// Returns whether the disk is full.
    pub(crate) fn is_full_disk(&self) -> bool {
        matches!(self, Self::Use { source, .. } if source.sqlite_error_code() == Some(ErrorCode::DiskFull))
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

    /// Runs a statement with parameters `?1`, `?2` and so on; returns its rows.
    fn query(&self, statement: &str, values: &[Value]) -> Result<Vec<Record>, StoreError> {
        if let Some(farm) = &self.farm {
            return Ok(farm.query(statement, values)?);
        }
        let mut statement = self.connection.prepare_cached(statement)?;
        let count = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            records.push(Record::new((0..count).map(|column| row.get(column)).collect::<Result<_, _>>()?));
        }
        Ok(records)
    }

    /// Runs a statement that returns no rows; returns the number of changed rows.
    fn execute(&self, statement: &str, values: &[Value]) -> Result<u64, StoreError> {
        match &self.farm {
            Some(farm) => Ok(farm.execute(statement, values)?),
            None => {
                let mut statement = self.connection.prepare_cached(statement)?;
                Ok(statement.execute(rusqlite::params_from_iter(values))? as u64)
            }
        }
    }

    /// Reads one value, if there is one.
    fn value<T: FromSql>(&self, select: &str, values: &[Value]) -> Result<Option<T>, StoreError> {
        self.query(select, values)?.into_iter().next().map(|mut record| record.take()).transpose()
    }

    fn change(&self, statement: &str, values: &[Value]) -> Result<u64, DatabaseError> {
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
