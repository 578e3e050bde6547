//! The order of the queue: which transfers are next, by priority and position; positions have gaps,
//! into which transfers are moved.

use rusqlite::params;

use super::{Database, DatabaseError, ResultRow, StoreError, TransferRow};

/// The distance between positions in the queue: 20 insertions at one point halve it to 1, and
/// positions are then reassigned.
pub(super) const SPACING: i64 = 1 << 20;
/// The lock that serialises agents of a farm that move transfers.
const ORDER_LOCK: i64 = 0x4c48_5132;

/// Returns the condition that this agent, which the parameter `owner` names, executes no worker of
/// a transfer's plan.
pub(super) fn other_plans(owner: &str) -> String {
    format!(
        "(kind <> 'plan' OR path NOT IN (SELECT path FROM transfers
                                         WHERE state = 'running' AND kind = 'plan' AND coalesce(owner, '') = {owner}))"
    )
}

impl Database {
    /// Reads the next queued transfers, most urgent first, without workers of plans that this agent
    /// has one of.
    pub(crate) fn next_queued(&self, limit: usize) -> Result<Vec<TransferRow>, DatabaseError> {
        let condition = format!(
            "WHERE state = 'queued' AND {} ORDER BY priority DESC, position, id LIMIT ?1",
            other_plans("?2")
        );
        self.readable_rows(&condition, params![limit, self.owner()])
    }

    /// Moves a transfer before another one, whose priority it takes, or to the end; returns whether
    /// that one exists.
    pub(crate) fn place(&mut self, id: i64, before: Option<i64>) -> Result<bool, DatabaseError> {
        let failed = DatabaseError::using("reorder");
        self.atomically(|database| {
            if database.farm.is_some() {
                let lock = "SELECT pg_advisory_xact_lock(?1)::TEXT";
                database.execute(lock, params![ORDER_LOCK]).map_err(&failed)?;
            }
            if let Some(before) = before
                && database.get(before)?.is_none()
            {
                return Ok(false);
            }
            if database.free_place(before).map_err(&failed)?.is_none() {
                database.spread().map_err(&failed)?;
            }
            // Another agent may have removed it just now.
            let Some((position, priority)) = database.free_place(before).map_err(&failed)? else {
                return Ok(false);
            };
            let update =
                "UPDATE transfers SET position = ?1, priority = coalesce(?2, priority) WHERE id = ?3";
            database.execute(update, params![position, priority, id]).map_err(&failed)?;
            Ok(true)
        })
    }

    /// Returns a position before the transfer `before`, with its priority; `None` if the gap to its
    /// neighbour is used up.
    fn free_place(&self, before: Option<i64>) -> Result<Option<(i64, Option<i64>)>, StoreError> {
        let last = "SELECT coalesce(max(position), 0) FROM transfers";
        let Some(before) = before else {
            let last: i64 = self.value(last, &[])?.unwrap_or_default();
            return Ok(Some((last + SPACING, None)));
        };
        let select = "SELECT position, priority FROM transfers WHERE id = ?1";
        let pair = |row: &ResultRow<'_>| Ok((row.get("position")?, row.get("priority")?));
        let mut found: Vec<(i64, i64)> = self.query(select, params![before], pair)?;
        let Some((next, priority)) = found.pop() else { return Ok(None) };
        let first = next - 2 * SPACING;
        let select = "SELECT coalesce(max(position), ?1) FROM transfers WHERE position < ?2";
        let previous = self.value(select, params![first, next])?.unwrap_or(first);
        let between = previous + (next - previous) / 2;
        Ok((between > previous && between < next).then_some((between, Some(priority))))
    }

    /// Reassigns the positions of all transfers with gaps, in their current order.
    fn spread(&self) -> Result<(), StoreError> {
        if self.farm.is_some() {
            // Rows are locked in the order in which renewals lock them: there is no deadlock.
            self.execute(
                "SELECT count(*) FROM (SELECT id FROM transfers ORDER BY id FOR UPDATE) AS locked",
                &[],
            )?;
        }
        self.execute(
            "UPDATE transfers SET position = placed.number * ?1 FROM
               (SELECT id, row_number() OVER (ORDER BY position, id) AS number FROM transfers) AS placed
             WHERE placed.id = transfers.id",
            params![SPACING],
        )
        .map(drop)
    }
}
