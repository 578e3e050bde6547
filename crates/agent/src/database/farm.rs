//! The connection to a farm's database in PostgreSQL. Each wait is bounded; a lost connection is
//! replaced at the next statement.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use longhaul_core::failure::FailureKind;
use rusqlite::{ToSql, params};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row, Statement};

use super::DatabaseError;
use super::column::FarmParameter;
use super::farm_address::{FarmAddress, FarmDatabaseError};
use super::farm_connection::{connect, has_ended};
use super::schema::{FARM_TABLES, FARM_VERSION};
use crate::error::AgentError;
use crate::secrets::SecretBox;

/// The interval between attempts to connect, in which statements fail at once.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// The lock that serialises agents that make the tables.
const TABLES_LOCK: i64 = 0x4c48_5131;
/// The text whose sealed form identifies the farm's key.
const SEALED_TEXT: &[u8] = b"longhaul farm";

/// The database of a farm.
pub(crate) struct FarmDatabase {
    address: FarmAddress,
    /// This agent in `transfers.owner`.
    pub(super) owner: String,
    runtime: Runtime,
    session: RefCell<Option<FarmSession>>,
    is_in_transaction: Cell<bool>,
    /// The last failure to connect.
    failed: RefCell<Option<(Instant, FarmDatabaseError)>>,
    /// The number of the server's process, by which this agent's own notifications are known.
    process: Arc<AtomicI64>,
}

struct FarmSession {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl FarmSession {
    async fn prepared(&mut self, statement: &str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(known) = self.statements.get(statement) {
            return Ok(known.clone());
        }
        // SQLite's parameters are written ?1.
        let prepared = self.client.prepare(&statement.replace('?', "$")).await?;
        self.statements.insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }
}

impl FarmDatabase {
    /// Connects to the database, makes its tables if missing, and returns it with the farm's key.
    /// The file `key` is made with a new farm; another host's agent needs a copy.
    ///
    /// # Errors
    /// [`AgentError`].
    pub(crate) fn open(
        address: &FarmAddress,
        owner: String,
        key: &Path,
    ) -> Result<(Self, SecretBox), AgentError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AgentError::Thread)?;
        let farm = Self {
            address: address.clone(),
            owner,
            runtime,
            session: RefCell::default(),
            is_in_transaction: Cell::new(false),
            failed: RefCell::default(),
            process: Arc::default(),
        };
        let failed = |error: FarmDatabaseError| DatabaseError::using("open")(error.into());
        farm.transaction_statement("BEGIN").map_err(failed)?;
        let secrets = farm.set_up(key)?;
        farm.transaction_statement("COMMIT").map_err(failed)?;
        Ok((farm, secrets))
    }

    /// Makes the tables, or checks those that exist, and the key.
    fn set_up(&self, key: &Path) -> Result<SecretBox, AgentError> {
        let failed = |error: FarmDatabaseError| DatabaseError::using("open")(error.into());
        let unreadable = |error| failed(self.address.explain(&error));
        let number = |statement: &str| {
            let row = self.query(statement, &[]).map_err(failed)?.pop();
            row.map_or(Ok(0), |row| row.try_get::<_, i64>(0)).map_err(unreadable)
        };
        let refused = |why: String, remedy: String| {
            AgentError::Database(failed(self.address.error(FailureKind::Config, why, remedy)))
        };
        self.execute("SELECT pg_advisory_xact_lock(?1)::TEXT", params![TABLES_LOCK]).map_err(failed)?;
        let is_new =
            number("SELECT count(*) FROM pg_tables WHERE schemaname = 'longhaul' AND tablename = 'farm'")?
                == 0;
        let use_key = || SecretBox::open(key).map_err(|error| AgentError::file("use the key", key, error));
        if is_new {
            let secrets = use_key()?;
            self.batch(&format!("CREATE SCHEMA IF NOT EXISTS longhaul; {FARM_TABLES}")).map_err(failed)?;
            let values = params![FARM_VERSION, secrets.seal(SEALED_TEXT)];
            self.execute("INSERT INTO farm (version, sealed) VALUES (?1, ?2)", values).map_err(failed)?;
            return Ok(secrets);
        }
        let version = number("SELECT max(version) FROM farm")?;
        if version > FARM_VERSION {
            let why = format!(
                "the farm is of a newer longhaul (schema {version}, this one supports {FARM_VERSION})"
            );
            return Err(refused(why, "use that version on all hosts".to_owned()));
        }
        let sealed = self.query("SELECT sealed FROM farm", &[]).map_err(failed)?.pop();
        let sealed: Vec<u8> = sealed.map_or(Ok(Vec::new()), |row| row.try_get(0)).map_err(unreadable)?;
        let secrets = if key.exists() { Some(use_key()?) } else { None };
        secrets.filter(|secrets| secrets.unseal(&sealed).is_ok()).ok_or_else(|| {
            let why = format!("{} is not the key of the farm", key.display());
            let remedy = "copy the farm.key of an agent of the farm to it, with mode 0600".to_owned();
            refused(why, remedy)
        })
    }

    /// Returns the number of the server's process, which changes with the connection.
    pub(super) fn process(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.process)
    }

    /// Returns the address.
    pub(super) fn address(&self) -> &FarmAddress {
        &self.address
    }

    /// Runs BEGIN, COMMIT or ROLLBACK.
    pub(super) fn transaction_statement(&self, statement: &str) -> Result<(), FarmDatabaseError> {
        // The server has rolled back with the loss of the connection.
        let is_over = statement == "ROLLBACK" && self.session.borrow().is_none();
        let done = if is_over { Ok(()) } else { self.batch(statement) };
        self.is_in_transaction.set(statement == "BEGIN" && done.is_ok());
        done
    }

    /// Runs a statement; returns its rows.
    pub(super) fn query(
        &self,
        statement: &str,
        values: &[&dyn ToSql],
    ) -> Result<Vec<Row>, FarmDatabaseError> {
        self.with_session(statement, async |session| {
            let prepared = session.prepared(statement).await?;
            session.client.query_raw(&prepared, parameters(values)).await?.try_collect().await
        })
    }

    /// Runs a statement; returns the number of changed rows.
    pub(super) fn execute(&self, statement: &str, values: &[&dyn ToSql]) -> Result<u64, FarmDatabaseError> {
        self.with_session(statement, async |session| {
            let prepared = session.prepared(statement).await?;
            session.client.execute_raw(&prepared, parameters(values)).await
        })
    }

    fn batch(&self, statements: &str) -> Result<(), FarmDatabaseError> {
        self.with_session(statements, async |session| session.client.batch_execute(statements).await)
    }

    /// Runs `run` on the connection. What changes nothing is repeated once on a fresh one: the
    /// database may have been restarted since the last statement.
    fn with_session<T>(
        &self,
        statement: &str,
        mut run: impl AsyncFnMut(&mut FarmSession) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, FarmDatabaseError> {
        let is_repeatable = ["SELECT", "BEGIN"].iter().any(|start| statement.starts_with(start));
        let may_repeat = is_repeatable && !self.is_in_transaction.get() && self.session.borrow().is_some();
        let mut attempts = 1 + usize::from(may_repeat);
        loop {
            attempts -= 1;
            let mut session = match self.session.take() {
                Some(session) => session,
                None => self.connect()?,
            };
            // A timeout is made within the runtime.
            let limit = self.address.timeouts.answer;
            let done = self.runtime.block_on(async { timeout(limit, run(&mut session)).await });
            match done {
                Ok(Ok(done)) => {
                    self.session.replace(Some(session));
                    return Ok(done);
                }
                Ok(Err(error)) if !has_ended(&error) => {
                    // Another host may be the one that is written to by now.
                    if error.code() != Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                        self.session.replace(Some(session));
                    }
                    return Err(self.address.explain(&error));
                }
                Ok(Err(_)) if attempts > 0 => {}
                Ok(Err(error)) => return Err(self.unanswered(statement, self.address.explain(&error))),
                Err(_) => return Err(self.unanswered(statement, self.address.silent(limit))),
            }
        }
    }

    /// Adds to the error of a statement without an answer whether its change is stored.
    fn unanswered(&self, statement: &str, error: FarmDatabaseError) -> FarmDatabaseError {
        let changes_nothing = ["SELECT", "BEGIN", "ROLLBACK"];
        if changes_nothing.iter().any(|start| statement.starts_with(start)) {
            error
        } else if self.is_in_transaction.get() && statement != "COMMIT" {
            error.and("and the change is not stored", "repeat it")
        } else {
            let remedy = "look at the list before you repeat the change";
            error.and("and the change may be stored or not", remedy)
        }
    }

    /// Connects, unless an attempt has just failed.
    fn connect(&self) -> Result<FarmSession, FarmDatabaseError> {
        if self.is_in_transaction.get() {
            let why = "the connection was lost during a change, which is not stored";
            return Err(self.address.error(FailureKind::Unavailable, why, "repeat it"));
        }
        if let Some((at, error)) = &*self.failed.borrow()
            && at.elapsed() < CONNECT_INTERVAL
        {
            return Err(error.clone());
        }
        let connected = self.runtime.block_on(connect(&self.address, None));
        let connected = connected.map(|(client, process)| {
            self.process.store(process, Ordering::Relaxed);
            FarmSession { client, statements: HashMap::new() }
        });
        self.failed.replace(connected.as_ref().err().map(|error| (Instant::now(), error.clone())));
        connected
    }
}

fn parameters<'a>(values: &'a [&'a dyn ToSql]) -> impl ExactSizeIterator<Item = FarmParameter<'a>> {
    values.iter().map(|value| FarmParameter(value.to_sql()))
}
