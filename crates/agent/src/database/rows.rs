//! Queries and updates of the tables. Times are seconds since 1970, passed by the caller.

use std::collections::BTreeMap;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, named_params, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::row::READ_COLUMNS;
use super::{Database, DatabaseError, NewTransfer, PartIdentity, Row, RunEnd};
use crate::json;
use crate::settings::{Doors, SettingsPatch};
use crate::transfer::TransferState;

/// The distance between positions in the queue: 20 insertions at one point halve it to 1, and positions are then
/// reassigned.
const SPACING: i64 = 1 << 20;

/// The bit that distinguishes the identifier of a transfer whose number is the identifier of another.
const OTHER_GIDS: i64 = 1 << 62;

/// A page of a listing.
#[derive(Debug)]
pub(crate) struct RowPage {
    pub(crate) rows: Vec<Row>,
    /// The start of the next page; `None` on the last page.
    pub(crate) next: Option<PageCursor>,
    pub(crate) total: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

/// A position in a listing: the last transfer's sort key, which stays valid when transfers are added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageCursor {
    rank: i64,
    urgency: i64,
    place: i64,
    id: i64,
}

impl std::fmt::Display for PageCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}.{}", self.rank, self.urgency, self.place, self.id)
    }
}

impl std::str::FromStr for PageCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Option<Vec<i64>> = text.split('.').map(|part| part.parse().ok()).collect();
        match parts.as_deref() {
            Some(&[rank, urgency, place, id]) => Ok(Self { rank, urgency, place, id }),
            _ => Err(format!("'{text}' is no cursor: take the one of the page before")),
        }
    }
}

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

    /// Reads a page of transfers, from running to most recently ended.
    pub(crate) fn page(
        &self,
        state: Option<TransferState>,
        after: Option<PageCursor>,
        limit: usize,
    ) -> Result<RowPage, DatabaseError> {
        let read = || {
            let after = after.unwrap_or(PageCursor { rank: i64::MIN, urgency: 0, place: 0, id: 0 });
            let filter = if state.is_some() { "AND state = :state" } else { "AND :state IS NULL" };
            let mut select = self.connection.prepare_cached(&format!(
                "SELECT {READ_COLUMNS}, rank, urgency, place FROM transfers
                 WHERE (rank, urgency, place, id) > (:rank, :urgency, :place, :id) {filter}
                 ORDER BY rank, urgency, place, id LIMIT :limit"
            ))?;
            let keyed = |row: &SqlRow<'_>| {
                let cursor = PageCursor {
                    rank: row.get("rank")?,
                    urgency: row.get("urgency")?,
                    place: row.get("place")?,
                    id: row.get("id")?,
                };
                Ok((Row::read(row)?, cursor))
            };
            let keyed = select.query_map(
                named_params! {
                    ":state": state.map(TransferState::name),
                    ":rank": after.rank, ":urgency": after.urgency, ":place": after.place, ":id": after.id,
                    ":limit": limit.saturating_add(1),
                },
                keyed,
            )?;
            let mut keyed: Vec<_> = keyed.collect::<rusqlite::Result<_>>()?;
            let more = keyed.len() > limit;
            keyed.truncate(limit);
            let next = keyed.last().filter(|_| more).map(|(_, cursor)| *cursor);
            let rows = keyed.into_iter().map(|(row, _)| row).collect();
            let counts = self.counts()?;
            let total = match state {
                Some(state) => counts.get(state.name()).copied().unwrap_or_default(),
                None => counts.values().sum(),
            };
            Ok(RowPage { rows, next, total, counts })
        };
        read().map_err(DatabaseError::using("read"))
    }

    /// Reads the most recently added transfers, latest first.
    pub(crate) fn newest(&self, limit: usize) -> Result<RowPage, DatabaseError> {
        let rows = self.rows("ORDER BY id DESC LIMIT ?", [limit])?;
        let counts = self.count()?;
        Ok(RowPage { rows, next: None, total: counts.values().sum(), counts })
    }

    fn counts(&self) -> rusqlite::Result<BTreeMap<&'static str, u64>> {
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

    fn rows<P: rusqlite::Params>(&self, condition: &str, params: P) -> Result<Vec<Row>, DatabaseError> {
        let read = || {
            let mut select = self
                .connection
                .prepare_cached(&format!("SELECT {READ_COLUMNS} FROM transfers {condition}"))?;
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

    /// Moves a transfer before another one, whose priority it takes, or to the end.
    pub(crate) fn place(&mut self, id: i64, before: Option<i64>) -> Result<(), DatabaseError> {
        let place = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            if free_place(&transaction, before)?.is_none() {
                spread(&transaction)?;
            }
            if let Some((position, priority)) = free_place(&transaction, before)? {
                transaction.execute(
                    "UPDATE transfers SET position = ?, priority = coalesce(?, priority) WHERE id = ?",
                    params![position, priority, id],
                )?;
            }
            transaction.commit()
        };
        place(&mut self.connection).map_err(DatabaseError::using("reorder"))
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

/// Returns a position before the transfer `before`, with its priority; `None` if the gap to its neighbour is used up.
fn free_place(connection: &Connection, before: Option<i64>) -> rusqlite::Result<Option<(i64, Option<i64>)>> {
    let Some(before) = before else {
        let last: i64 =
            connection.query_row("SELECT coalesce(max(position), 0) FROM transfers", [], |row| row.get(0))?;
        return Ok(Some((last + SPACING, None)));
    };
    let select = "SELECT position, priority FROM transfers WHERE id = ?";
    let (next, priority): (i64, i64) =
        connection.query_row(select, [before], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let select = "SELECT coalesce(max(position), ?) FROM transfers WHERE position < ?";
    let previous: i64 = connection.query_row(select, params![next - 2 * SPACING, next], |row| row.get(0))?;
    let between = previous + (next - previous) / 2;
    Ok((between > previous && between < next).then_some((between, Some(priority))))
}

/// Reassigns the positions of all transfers with gaps, in their current order.
fn spread(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE transfers SET position = placed.number * ?1 FROM
           (SELECT id, row_number() OVER (ORDER BY position, id) AS number FROM transfers) AS placed
         WHERE placed.id = transfers.id",
        [SPACING],
    )?;
    Ok(())
}
