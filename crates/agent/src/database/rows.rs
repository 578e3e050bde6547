//! Queries and updates of the tables. Times are seconds since 1970, passed by the caller.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, ToSql, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::column::clamped;
use super::row::{COLUMNS, readable};
use super::{Database, DatabaseError, PartIdentity, ResultRow, RunEnd, StoreError, TransferRow};
use crate::json;
use crate::settings::{Doors, SettingsPatch};
use crate::transfer::TransferState;

impl Database {
    /// Reads a transfer.
    pub(crate) fn get(&self, id: i64) -> Result<Option<TransferRow>, DatabaseError> {
        self.row("", id)
    }

    /// Reads a transfer, which no other agent changes until the end of the transaction.
    pub(crate) fn get_locked(&self, id: i64) -> Result<Option<TransferRow>, DatabaseError> {
        self.row(if self.farm.is_some() { "FOR UPDATE" } else { "" }, id)
    }

    /// Returns the number of the transfer with this identifier.
    pub(crate) fn id_of_gid(&self, gid: u64) -> Result<Option<i64>, DatabaseError> {
        let select = "SELECT id FROM transfers WHERE gid = ?1 OR (id = ?1 AND gid IS NULL)";
        self.value(select, params![gid.cast_signed()]).map_err(DatabaseError::using("read"))
    }

    /// Reads the sealed request of a transfer.
    pub(crate) fn request(&self, id: i64) -> Result<Option<Vec<u8>>, DatabaseError> {
        let select = "SELECT request FROM transfers WHERE id = ?1";
        self.value(select, params![id]).map_err(DatabaseError::using("read"))
    }

    /// Replaces the request of a transfer and its displayed URLs.
    pub(crate) fn set_request(&self, id: i64, request: &[u8], urls: &[String]) -> Result<(), DatabaseError> {
        let update = "UPDATE transfers SET request = ?1, urls = ?2 WHERE id = ?3";
        self.change(update, params![request, json(&urls), id]).map(drop)
    }

    pub(super) fn counts(&self) -> Result<BTreeMap<&'static str, u64>, StoreError> {
        let mut counts: BTreeMap<_, _> = TransferState::ALL.iter().map(|state| (state.name(), 0)).collect();
        let select = "SELECT state, count(*) AS transfers FROM transfers GROUP BY state";
        let pair = |row: &ResultRow<'_>| Ok((row.get("state")?, row.get("transfers")?));
        for (state, count) in self.query::<(String, u64), Vec<_>>(select, &[], pair)? {
            if let Ok(state) = state.parse::<TransferState>() {
                counts.insert(state.name(), count);
            }
        }
        Ok(counts)
    }

    /// Counts the transfers of each state.
    pub(crate) fn count(&self) -> Result<BTreeMap<&'static str, u64>, DatabaseError> {
        self.counts().map_err(DatabaseError::using("read"))
    }

    /// Reads the transfers that are marked as running on this host.
    pub(crate) fn running(&self) -> Result<Vec<TransferRow>, DatabaseError> {
        self.readable_rows("WHERE state = 'running' AND coalesce(owner, '') = ?1", params![self.owner()])
    }

    /// Reads the transfers scheduled for a time.
    pub(crate) fn scheduled(&self) -> Result<Vec<TransferRow>, DatabaseError> {
        self.readable_rows("WHERE state = 'scheduled'", &[])
    }

    /// Reads the offers that are not accepted.
    pub(crate) fn offered(&self) -> Result<Vec<TransferRow>, DatabaseError> {
        self.readable_rows("WHERE offered = 1", &[])
    }

    /// Accepts an offer.
    pub(crate) fn accept(&self, id: i64) -> Result<(), DatabaseError> {
        self.change("UPDATE transfers SET offered = 0 WHERE id = ?1", params![id]).map(drop)
    }

    fn row(&self, lock: &str, id: i64) -> Result<Option<TransferRow>, DatabaseError> {
        let select = format!("SELECT {COLUMNS} FROM transfers WHERE id = ?1 {lock}");
        let rows = self.query(&select, params![id], TransferRow::read).map_err(DatabaseError::using("read"));
        rows.map(|mut rows: Vec<_>| rows.pop())
    }

    /// Reads transfers; passes over those of another version, which must not hold up the others.
    pub(super) fn readable_rows(
        &self,
        condition: &str,
        values: &[&dyn ToSql],
    ) -> Result<Vec<TransferRow>, DatabaseError> {
        let select = format!("SELECT {COLUMNS} FROM transfers {condition}");
        let rows = self.query(&select, values, |row| Ok(readable(row)));
        rows.map(|rows: Vec<_>| rows.into_iter().flatten().collect()).map_err(DatabaseError::using("read"))
    }

    /// Changes the state of a transfer; sets the end time of an ended one.
    pub(crate) fn set_state(&self, id: i64, state: TransferState, now: i64) -> Result<(), DatabaseError> {
        let ended = state.is_ended().then_some(now);
        let update = "UPDATE transfers SET state = ?1, ended = ?2, retry_at = NULL WHERE id = ?3";
        self.change(update, params![state.name(), ended, id]).map(drop)
    }

    /// Queues a transfer that is scheduled; returns whether it still was.
    pub(crate) fn promote(&self, id: i64) -> Result<bool, DatabaseError> {
        let update =
            "UPDATE transfers SET state = 'queued', retry_at = NULL WHERE id = ?1 AND state = 'scheduled'";
        Ok(self.change(update, params![id])? > 0)
    }

    /// Requeues a transfer; resets its failures.
    pub(crate) fn requeue(&self, id: i64, state: TransferState) -> Result<(), DatabaseError> {
        let update =
            "UPDATE transfers SET state = ?1, ended = NULL, error = NULL, attempts = 0, busy_retries = 0,
                      retry_at = NULL WHERE id = ?2";
        self.change(update, params![state.name(), id]).map(drop)
    }

    /// Records the start of a run; returns whether the transfer was still queued.
    pub(crate) fn begin(&self, id: i64, now: i64) -> Result<bool, DatabaseError> {
        let update =
            "UPDATE transfers SET state = 'running', started = coalesce(started, ?1), retry_at = NULL
                      WHERE id = ?2 AND state = 'queued'";
        Ok(self.change(update, params![now, id])? > 0)
    }

    /// Records the file that a run of this lease writes; returns whether the lease was still the
    /// last.
    pub(crate) fn set_part(
        &self,
        (id, epoch): (i64, i64),
        part: &PartIdentity,
        size: Option<u64>,
    ) -> Result<bool, DatabaseError> {
        let name = part.target.file_name().map(|name| name.to_string_lossy().into_owned());
        let path = part.target.to_string_lossy().into_owned();
        let update =
            "UPDATE transfers SET part_target = ?1, part_device = ?2, part_inode = ?3, part_born = ?4,
                      size = coalesce(?5, size), path = ?6, name = coalesce(?7, name)
                      WHERE id = ?8 AND epoch = ?9 AND coalesce(owner, '') = ?10";
        let (target, device, owner) = (part.target_bytes(), part.device, self.owner());
        let values =
            params![target, device, part.inode, part.born, size.map(clamped), path, name, id, epoch, owner];
        Ok(self.change(update, values)? > 0)
    }

    /// Records the end of a run; returns whether its lease was still the last. Changes the state
    /// only from `running`, or to `done`: the user may have paused the transfer meanwhile. May be
    /// repeated: the first answer may have been lost.
    pub(crate) fn end(
        &self,
        id: i64,
        state: TransferState,
        end: &RunEnd,
        now: i64,
    ) -> Result<bool, DatabaseError> {
        let update = "UPDATE transfers SET
                state = CASE WHEN state = 'running' OR ?2 = 'done' THEN ?2 ELSE state END,
                ended = CASE WHEN CAST(?3 AS BIGINT) IS NOT NULL AND (state = 'running' OR ?2 = 'done') THEN ?3 ELSE ended END,
                retry_at = CASE WHEN state = 'running' THEN ?4 ELSE retry_at END,
                attempts = CASE WHEN state = 'running' THEN ?5 ELSE attempts END,
                busy_retries = CASE WHEN state = 'running' THEN ?6 ELSE busy_retries END,
                bytes = ?7, size = coalesce(?8, size), path = coalesce(?9, path), run = ?10, error = ?11
            WHERE id = ?1 AND epoch = ?12 AND coalesce(owner, '') = ?13";
        let values = params![
            id,
            state.name(),
            state.is_ended().then_some(now),
            end.retry_at,
            end.attempts,
            end.busy_retries,
            clamped(end.progress.bytes),
            end.progress.size.map(clamped),
            end.path,
            json(&end.progress.run),
            end.error.as_ref().map(json),
            end.epoch,
            self.owner(),
        ];
        Ok(self.change(update, values)? > 0)
    }

    /// Removes a transfer.
    pub(crate) fn remove(&self, id: i64) -> Result<(), DatabaseError> {
        self.change("DELETE FROM transfers WHERE id = ?1", params![id]).map(drop)
    }

    /// Changes the priority or the rate limit of a transfer.
    pub(crate) fn patch(
        &self,
        id: i64,
        priority: Option<i64>,
        limit: Option<Option<u64>>,
    ) -> Result<(), DatabaseError> {
        if let Some(priority) = priority {
            self.change("UPDATE transfers SET priority = ?1 WHERE id = ?2", params![priority, id])?;
        }
        if let Some(limit) = limit {
            self.change(
                "UPDATE transfers SET limit_bps = ?1 WHERE id = ?2",
                params![limit.map(clamped), id],
            )?;
        }
        Ok(())
    }

    /// Reads all changes of the settings.
    pub(crate) fn settings(&self) -> Result<SettingsPatch, DatabaseError> {
        self.stored("settings")
    }

    /// Stores all changes of the settings.
    pub(crate) fn set_settings(&self, settings: &SettingsPatch) -> Result<(), DatabaseError> {
        self.store("settings", settings)
    }

    /// Reads the addresses that the last agent served.
    pub(crate) fn doors(&self) -> Result<Doors, DatabaseError> {
        self.stored("doors")
    }

    /// Returns the name of this agent in all farms, which lasts as long as its state directory.
    pub(crate) fn agent_name(&self) -> Result<String, DatabaseError> {
        let name: String = self.stored("agent")?;
        if !name.is_empty() {
            return Ok(name);
        }
        let name = crate::agent::fresh_token();
        self.store("agent", &name)?;
        Ok(name)
    }

    /// Stores the addresses that this agent serves.
    pub(crate) fn set_doors(&self, doors: &Doors) -> Result<(), DatabaseError> {
        self.store("doors", doors)
    }

    fn stored<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, DatabaseError> {
        let select = "SELECT value FROM settings WHERE name = ?";
        let read = || self.connection.query_row(select, [name], |row| row.get(0)).optional();
        let text: Option<String> =
            read().map_err(|error| DatabaseError::using("read")(StoreError::Sqlite(error)))?;
        // Unreadable settings of another version are replaced by the defaults.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    fn store(&self, name: &str, value: &impl Serialize) -> Result<(), DatabaseError> {
        let insert = "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)";
        let write = || self.connection.prepare_cached(insert)?.execute([name, &json(value)]);
        write().map(drop).map_err(|error| DatabaseError::using("change")(StoreError::Sqlite(error)))
    }

    /// Limits the file's size to simulate a full disk.
    #[cfg(test)]
    pub(crate) fn limit_pages(&self, pages: i64) {
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
    }

    /// Returns the number of pages of the file.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> i64 {
        self.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
    }
}
