//! The order of the queue: positions with gaps, into which transfers are moved.

use rusqlite::{Connection, params};

use super::{Database, DatabaseError};

/// The distance between positions in the queue: 20 insertions at one point halve it to 1, and positions are then
/// reassigned.
pub(super) const SPACING: i64 = 1 << 20;

impl Database {
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
