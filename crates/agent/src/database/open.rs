//! Opens a database: checks it, migrates it to the current version, and moves a damaged one aside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_sys::if_exists::if_exists;
use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::schema::{APPLICATION, VERSION, migrate};
use super::{Database, DatabaseError};
use crate::paths::make_private;

/// The timeout for another process's lock, such as that of a backup.
const BUSY: Duration = Duration::from_secs(5);
/// The size of the page cache in KiB: an index of 10,000 transfers fits.
const CACHE_KIB: i64 = 1024;

/// An open database.
pub(crate) struct OpenedDatabase {
    pub(crate) database: Database,
    /// The new path of a damaged database that was moved aside, and the reason.
    pub(crate) damaged: Option<(PathBuf, String)>,
}

/// The reason why a database cannot be used.
enum OpenFailure {
    Damaged(String),
    Other(DatabaseError),
}

pub(super) fn open(path: &Path, now: i64) -> Result<OpenedDatabase, DatabaseError> {
    let why = match try_open(path) {
        Ok(database) => return Ok(OpenedDatabase { database, damaged: None }),
        Err(OpenFailure::Other(error)) => return Err(error),
        Err(OpenFailure::Damaged(why)) => why,
    };
    let aside =
        move_aside(path, now).map_err(|source| DatabaseError::Aside { path: path.to_owned(), source })?;
    match try_open(path) {
        Ok(database) => Ok(OpenedDatabase { database, damaged: Some((aside, why)) }),
        Err(OpenFailure::Other(error)) => Err(error),
        Err(OpenFailure::Damaged(_)) => {
            let source = rusqlite::Error::InvalidPath(path.to_owned());
            Err(DatabaseError::Open { path: path.to_owned(), source })
        }
    }
}

fn try_open(path: &Path) -> Result<Database, OpenFailure> {
    let unusable = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            OpenFailure::Damaged(source.to_string())
        }
        _ => OpenFailure::Other(DatabaseError::Open { path: path.to_owned(), source }),
    };
    // SQLite gives its other files the mode of this one; it reports an error itself.
    let _ = make_private(path);
    let mut connection = Connection::open(path).map_err(unusable)?;
    let version = set_up(&connection).map_err(unusable)?;
    if version > VERSION {
        return Err(OpenFailure::Other(DatabaseError::Newer {
            path: path.to_owned(),
            found: version,
            known: VERSION,
        }));
    }
    let check: Option<String> =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).optional().map_err(unusable)?;
    if let Some(found) = check.filter(|found| found != "ok") {
        return Err(OpenFailure::Damaged(found));
    }
    migrate(&mut connection, version).map_err(unusable)?;
    Ok(Database { connection, farm: None })
}

/// Configures a connection; returns the version of the database.
fn set_up(connection: &Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY)?;
    let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if version > VERSION && application == APPLICATION {
        return Ok(version);
    }
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    // A database of another program must not be used, whatever its version.
    if tables > 0 && (application != APPLICATION || version < 1) {
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error {
                code: ErrorCode::NotADatabase,
                extended_code: rusqlite::ffi::SQLITE_NOTADB,
            },
            Some("it is not a queue of longhaul".to_owned()),
        ));
    }
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(version)
}

/// Renames a database and its side files; returns its new path.
fn move_aside(path: &Path, now: i64) -> std::io::Result<PathBuf> {
    let with = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let free = |number: &u32| !with(path, &format!(".damaged-{now}-{number}")).exists();
    let number = (0..1000).find(free).unwrap_or_default();
    let aside = with(path, &format!(".damaged-{now}-{number}"));
    std::fs::rename(path, &aside)?;
    for suffix in ["-wal", "-shm"] {
        if_exists(std::fs::rename(with(path, suffix), with(&aside, suffix)))?;
    }
    Ok(aside)
}
