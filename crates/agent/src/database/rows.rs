//! Queries and updates of the tables. Times are seconds since 1970, passed by the caller.

use std::collections::BTreeMap;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, named_params, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::order::SPACING;
use super::{Database, DatabaseError, NewTransfer, PartIdentity, Row, RunEnd};
use crate::json;
use crate::settings::{Doors, SettingsPatch};
use crate::transfer::TransferState;

/// The bit that distinguishes the identifier of a transfer whose number is the identifier of another.
const OTHER_GIDS: i64 = 1 << 62;

impl Database {
    /// Adds transfers, all or none; returns their numbers. A transfer with a known key is not added again.
    pub(crate) fn add(&mut self, transfers: &[NewTransfer], now: i64) -> Result<Vec<i64>, DatabaseError> {
        let add = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            let last: i64 =
                transaction
                    .query_row("SELECT coalesce(max(position), 0) FROM transfers", [], |row| row.get(0))?;
            let mut ids = Vec::with_capacity(transfers.len());
            for (transfer, place) in transfers.iter().zip(1..) {
                if let Some(key) = &transfer.key {
                    let known = transaction
                        .query_row("SELECT id FROM transfers WHERE key = ?", [key], |row| row.get(0))
                        .optional()?;
                    if let Some(id) = known {
                        ids.push(id);
                        continue;
                    }
                }
                transfer.insert(&transaction, last + place * SPACING, now)?;
                let id = transaction.last_insert_rowid();
                if transfer.gid.is_none() {
                    // A client may have chosen the number.
                    let update = "UPDATE transfers SET gid = ?2 WHERE id = ?1 AND EXISTS (SELECT 1 FROM transfers WHERE gid = ?1)";
                    transaction.prepare_cached(update)?.execute([id, id | OTHER_GIDS])?;
                }
                ids.push(id);
            }
            transaction.commit()?;
            Ok(ids)
        };
        add(&mut self.connection).map_err(DatabaseError::using("add to"))
    }

    /// Reads a transfer.
    pub(crate) fn get(&self, id: i64) -> Result<Option<Row>, DatabaseError> {
        self.rows("WHERE id = ?", [id]).map(|mut rows| rows.pop())
    }

    /// Returns the number of the transfer with this identifier.
    pub(crate) fn id_of_gid(&self, gid: u64) -> Result<Option<i64>, DatabaseError> {
        let select = "SELECT id FROM transfers WHERE gid = ?1 OR (id = ?1 AND gid IS NULL)";
        self.value(select, [gid.cast_signed()])
    }

    /// Reads the sealed request of a transfer.
    pub(crate) fn request(&self, id: i64) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.value("SELECT request FROM transfers WHERE id = ?", [id])
    }

    /// Replaces the request of a transfer and its displayed URLs.
    pub(crate) fn set_request(&self, id: i64, request: &[u8], urls: &[String]) -> Result<(), DatabaseError> {
        let update = "UPDATE transfers SET request = ?, urls = ? WHERE id = ?";
        self.change(update, params![request, json(&urls), id])
    }

    pub(super) fn counts(&self) -> rusqlite::Result<BTreeMap<&'static str, u64>> {
        let mut counts: BTreeMap<_, _> = TransferState::ALL.iter().map(|state| (state.name(), 0)).collect();
        let mut select =
            self.connection.prepare_cached("SELECT state, count(*) FROM transfers GROUP BY state")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (state, count): (String, i64) = (row.get(0)?, row.get(1)?);
            if let Ok(state) = state.parse::<TransferState>() {
                counts.insert(state.name(), count.cast_unsigned());
            }
        }
        Ok(counts)
    }

    /// Counts the transfers of each state.
    pub(crate) fn count(&self) -> Result<BTreeMap<&'static str, u64>, DatabaseError> {
        self.counts().map_err(DatabaseError::using("read"))
    }

    /// Reads the transfers that are marked as running.
    pub(crate) fn running(&self) -> Result<Vec<Row>, DatabaseError> {
        self.rows("WHERE state = 'running'", [])
    }

    /// Reads the next queued transfers, most urgent first.
    pub(crate) fn next_queued(&self, limit: usize) -> Result<Vec<Row>, DatabaseError> {
        self.rows("WHERE state = 'queued' ORDER BY priority DESC, position, id LIMIT ?", [limit])
    }

    /// Reads the transfers scheduled for a time.
    pub(crate) fn scheduled(&self) -> Result<Vec<Row>, DatabaseError> {
        self.rows("WHERE state = 'scheduled'", [])
    }

    /// Reads the offers that are not accepted.
    pub(crate) fn offered(&self) -> Result<Vec<Row>, DatabaseError> {
        self.rows("WHERE offered", [])
    }

    /// Accepts an offer.
    pub(crate) fn accept(&self, id: i64) -> Result<(), DatabaseError> {
        self.change("UPDATE transfers SET offered = 0 WHERE id = ?", [id])
    }

    pub(super) fn rows<P: rusqlite::Params>(
        &self,
        condition: &str,
        params: P,
    ) -> Result<Vec<Row>, DatabaseError> {
        let read = || {
            let select = format!("SELECT * FROM transfers {condition}");
            let mut select = self.connection.prepare_cached(&select)?;
            select.query_map(params, Row::read)?.collect::<rusqlite::Result<_>>()
        };
        read().map_err(DatabaseError::using("read"))
    }

    /// Reads one value, if there is one.
    fn value<T: FromSql, P: rusqlite::Params>(
        &self,
        select: &str,
        params: P,
    ) -> Result<Option<T>, DatabaseError> {
        let value = self.connection.query_row(select, params, |row| row.get(0));
        value.optional().map_err(DatabaseError::using("read"))
    }

    /// Changes the state of a transfer; sets the end time of an ended one.
    pub(crate) fn set_state(&self, id: i64, state: TransferState, now: i64) -> Result<(), DatabaseError> {
        let ended = state.is_ended().then_some(now);
        let update = "UPDATE transfers SET state = ?, ended = ?, retry_at = NULL WHERE id = ?";
        self.change(update, params![state.name(), ended, id])
    }

    /// Requeues a transfer; resets its failures.
    pub(crate) fn requeue(&self, id: i64, state: TransferState) -> Result<(), DatabaseError> {
        let update = "UPDATE transfers SET state = ?, ended = NULL, error = NULL, attempts = 0, retry_at = NULL WHERE id = ?";
        self.change(update, params![state.name(), id])
    }

    /// Records the start of a run; returns whether the transfer was still queued.
    pub(crate) fn begin(&self, id: i64, now: i64) -> Result<bool, DatabaseError> {
        let update = "UPDATE transfers SET state = 'running', started = coalesce(started, ?), retry_at = NULL
                      WHERE id = ? AND state = 'queued'";
        let begun =
            self.connection.execute(update, params![now, id]).map_err(DatabaseError::using("change"))?;
        Ok(begun > 0)
    }

    /// Records the file that a run writes.
    pub(crate) fn set_part(
        &self,
        id: i64,
        part: &PartIdentity,
        size: Option<u64>,
    ) -> Result<(), DatabaseError> {
        let name = part.target.file_name().map(|name| name.to_string_lossy().into_owned());
        let update = "UPDATE transfers SET part_target = ?, part_device = ?, part_inode = ?, part_born = ?, size = coalesce(?, size),
                      path = ?, name = coalesce(?, name) WHERE id = ?";
        self.change(
            update,
            params![
                part.target_bytes(),
                part.device,
                part.inode,
                part.born,
                size.map(u64::cast_signed),
                part.target.to_string_lossy(),
                name,
                id
            ],
        )
    }

    /// Records the end of a run. Changes the state only from `running`, or to `done`: the user may have paused the
    /// transfer meanwhile.
    pub(crate) fn end(
        &self,
        id: i64,
        state: TransferState,
        end: &RunEnd,
        now: i64,
    ) -> Result<(), DatabaseError> {
        let update = "UPDATE transfers SET
                state = CASE WHEN state = 'running' OR :state = 'done' THEN :state ELSE state END,
                ended = CASE WHEN :ended IS NOT NULL AND (state = 'running' OR :state = 'done') THEN :ended ELSE ended END,
                retry_at = CASE WHEN state = 'running' THEN :retry_at ELSE retry_at END,
                attempts = CASE WHEN :advanced THEN 0 ELSE attempts END + (:retry_at IS NOT NULL),
                bytes = :bytes, size = coalesce(:size, size), path = coalesce(:path, path), run = :run, error = :error
            WHERE id = :id";
        self.change(
            update,
            named_params! {
                ":id": id,
                ":state": state.name(),
                ":ended": state.is_ended().then_some(now),
                ":retry_at": end.retry_at,
                ":advanced": end.advanced,
                ":bytes": end.bytes.cast_signed(),
                ":size": end.size.map(u64::cast_signed),
                ":path": end.path,
                ":run": json(&end.run),
                ":error": end.error.as_ref().map(json),
            },
        )
    }

    /// Removes a transfer.
    pub(crate) fn remove(&self, id: i64) -> Result<(), DatabaseError> {
        self.change("DELETE FROM transfers WHERE id = ?", [id])
    }

    /// Changes the priority or the rate limit of a transfer.
    pub(crate) fn patch(
        &self,
        id: i64,
        priority: Option<i64>,
        limit: Option<Option<u64>>,
    ) -> Result<(), DatabaseError> {
        if let Some(priority) = priority {
            self.change("UPDATE transfers SET priority = ? WHERE id = ?", params![priority, id])?;
        }
        if let Some(limit) = limit {
            self.change(
                "UPDATE transfers SET limit_bps = ? WHERE id = ?",
                params![limit.map(u64::cast_signed), id],
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

    /// Stores the addresses that this agent serves.
    pub(crate) fn set_doors(&self, doors: &Doors) -> Result<(), DatabaseError> {
        self.store("doors", doors)
    }

    fn stored<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, DatabaseError> {
        let select = "SELECT value FROM settings WHERE name = ?";
        let text: Option<String> = self.value(select, [name])?;
        // Unreadable settings of another version are replaced by the defaults.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    fn store(&self, name: &str, value: &impl Serialize) -> Result<(), DatabaseError> {
        self.change("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", [name, &json(value)])
    }

    fn change<P: rusqlite::Params>(&self, statement: &str, params: P) -> Result<(), DatabaseError> {
        let change = || self.connection.prepare_cached(statement)?.execute(params).map(drop);
        change().map_err(DatabaseError::using("change"))
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
