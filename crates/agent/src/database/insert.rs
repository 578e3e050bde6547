//! Adds transfers, many with one statement: the database of a farm may be far away.

use std::collections::HashMap;
use std::fmt::Write;

use rusqlite::{ToSql, params};

use super::order::SPACING;
use super::{Database, DatabaseError, NewTransfer, ResultRow, StoreError, TransferRow};

/// The maximum number of transfers of one statement: SQLite permits 32,766 parameters, PostgreSQL
/// 65,535.
pub(crate) const MAX_ROWS: usize = 256;
/// The bit that distinguishes the identifier of a transfer whose number is the identifier of
/// another.
const OTHER_GIDS: i64 = 1 << 62;

impl Database {
    /// Adds transfers, all or none; returns their numbers. A transfer with a known key is not added
    /// again.
    pub(crate) fn add(&mut self, transfers: &[NewTransfer], now: i64) -> Result<Vec<i64>, DatabaseError> {
        let failed = DatabaseError::using("add to");
        self.atomically(|database| {
            let last = "SELECT coalesce(max(position), 0) FROM transfers";
            let mut last: i64 = database.value(last, &[]).map_err(&failed)?.unwrap_or_default();
            let mut ids = Vec::with_capacity(transfers.len());
            for transfers in of_statements(transfers) {
                let positions: Vec<_> =
                    (last + SPACING..).step_by(SPACING as usize).take(transfers.len()).collect();
                last = positions.last().copied().unwrap_or(last);
                ids.extend(database.insert(transfers, &positions, now).map_err(&failed)?);
            }
            Ok(ids)
        })
    }

    /// Adds the transfers of one statement unless their keys are known; returns their numbers.
    fn insert(&self, transfers: &[NewTransfer], positions: &[i64], now: i64) -> Result<Vec<i64>, StoreError> {
        let placed = transfers.iter().zip(positions);
        let rows: Vec<_> =
            placed.clone().map(|(transfer, position)| transfer.columns(*position, now)).collect();
        let names: Vec<_> = rows.iter().take(1).flatten().map(|(name, _)| *name).collect();
        let values: Vec<_> = rows.iter().flatten().map(|(_, value)| value as &dyn ToSql).collect();
        // A known key locks nothing: its transfer may be one that another agent renews or ends.
        let insert = format!(
            "INSERT INTO transfers ({}) VALUES {} ON CONFLICT (key) DO NOTHING RETURNING position, id",
            names.join(", "),
            parameters(rows.len(), names.len())
        );
        let pair = |row: &ResultRow<'_>| Ok((row.get("position")?, row.get("id")?));
        let added: HashMap<i64, i64> = self.query(&insert, &values, pair)?;
        if let (Some(first), Some(last)) = (added.values().min(), added.values().max()) {
            // A client may have chosen the number of a transfer as the identifier of another.
            let update = "UPDATE transfers SET gid = id | ?3 WHERE id BETWEEN ?1 AND ?2 AND gid IS NULL
                          AND id IN (SELECT gid FROM transfers WHERE gid BETWEEN ?1 AND ?2)";
            self.execute(update, params![first, last, OTHER_GIDS])?;
        }
        let known = if added.len() < transfers.len() { self.ids_of_keys(transfers)? } else { HashMap::new() };
        let id = |(transfer, position): (&NewTransfer, &i64)| {
            let id = added.get(position).or_else(|| known.get(transfer.key.as_ref()?));
            let why = || "a transfer was removed while it was added again: repeat the request".to_owned();
            id.copied().ok_or_else(|| StoreError::Unreadable(why()))
        };
        placed.map(id).collect()
    }

    /// Returns the numbers of the transfers that have the keys of these.
    fn ids_of_keys(&self, transfers: &[NewTransfer]) -> Result<HashMap<String, i64>, StoreError> {
        let keys: Vec<_> = transfers.iter().map(|transfer| &transfer.key as &dyn ToSql).collect();
        let select = format!("SELECT key, id FROM transfers WHERE key IN {}", parameters(1, keys.len()));
        self.query(&select, &keys, |row| Ok((row.get("key")?, row.get("id")?)))
    }

    /// Reads transfers, in the order of `ids`, without those that are removed.
    pub(crate) fn get_all(&self, ids: &[i64]) -> Result<Vec<TransferRow>, DatabaseError> {
        let mut rows = HashMap::with_capacity(ids.len());
        for ids in of_statements(ids) {
            let values: Vec<_> = ids.iter().map(|id| id as &dyn ToSql).collect();
            let found = self.readable_rows(&format!("WHERE id IN {}", parameters(1, ids.len())), &values)?;
            rows.extend(found.into_iter().map(|row| (row.transfer.id, row)));
        }
        Ok(ids.iter().filter_map(|id| rows.get(id).cloned()).collect())
    }
}

/// Divides what is added or read among statements, whose sizes are powers of two: few statements
/// are prepared.
fn of_statements<T>(mut rest: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = 1 << rest.len().checked_ilog2()?.min(MAX_ROWS.ilog2());
        let (next, others) = rest.split_at(size);
        rest = others;
        Some(next)
    })
}

/// Returns rows of parameters: (?1, ?2), (?3, ?4).
fn parameters(rows: usize, columns: usize) -> String {
    let mut text = String::new();
    for number in 0..rows * columns {
        let before = match number {
            0 => "(",
            _ if number % columns == 0 => "), (",
            _ => ", ",
        };
        // Writing to a string does not fail.
        let _ = write!(text, "{before}?{}", number + 1);
    }
    text + ")"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_few_sizes_and_rows_of_parameters() {
        let sizes: Vec<_> = of_statements(&[0; 519]).map(<[_]>::len).collect();
        assert_eq!(sizes, [256, 256, 4, 2, 1]);
        assert_eq!(of_statements::<i64>(&[]).count(), 0);
        assert_eq!(parameters(2, 2), "(?1, ?2), (?3, ?4)");
    }
}
