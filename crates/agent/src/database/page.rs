//! Pages of transfers, in the order of their listing.

use std::collections::BTreeMap;

use rusqlite::params;

use super::row::{COLUMNS, readable};
use super::{Database, DatabaseError, ResultRow, StoreError, TransferRow};
use crate::transfer::TransferState;

/// A page of a listing.
#[derive(Debug)]
pub(crate) struct RowPage {
    pub(crate) rows: Vec<TransferRow>,
    /// The start of the next page; `None` on the last page.
    pub(crate) next: Option<PageCursor>,
    pub(crate) total: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

/// A position in a listing: the last transfer's sort key, which stays valid when transfers are
/// added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageCursor {
    rank: i64,
    urgency: i64,
    place: i64,
    id: i64,
}

impl PageCursor {
    fn read(row: &ResultRow<'_>) -> Result<Self, StoreError> {
        let (rank, urgency) = (row.get("rank")?, row.get("urgency")?);
        Ok(Self { rank, urgency, place: row.get("place")?, id: row.get("id")? })
    }
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
    /// Reads a page of transfers, from running to most recently ended.
    pub(crate) fn page(
        &self,
        state: Option<TransferState>,
        after: Option<PageCursor>,
        limit: usize,
    ) -> Result<RowPage, DatabaseError> {
        let read = || {
            let after = after.unwrap_or(PageCursor { rank: i64::MIN, urgency: 0, place: 0, id: 0 });
            let filter = if state.is_some() { "AND state = ?1" } else { "AND CAST(?1 AS TEXT) IS NULL" };
            let select = format!(
                "SELECT rank, urgency, place, {COLUMNS} FROM transfers
                 WHERE (rank, urgency, place, id) > (?2, ?3, ?4, ?5) {filter}
                 ORDER BY rank, urgency, place, id LIMIT ?6"
            );
            let state_name = state.map(TransferState::name);
            let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
            let values = params![state_name, after.rank, after.urgency, after.place, after.id, most];
            let keyed = |row: &ResultRow<'_>| Ok((PageCursor::read(row)?, readable(row)));
            let mut keyed: Vec<_> = self.query(&select, values, keyed)?;
            let more = keyed.len() > limit;
            keyed.truncate(limit);
            let next = keyed.last().filter(|_| more).map(|(cursor, _)| *cursor);
            let rows = keyed.into_iter().filter_map(|(_, row)| row).collect();
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
        let rows = self.readable_rows("ORDER BY id DESC LIMIT ?1", params![limit])?;
        let counts = self.count()?;
        Ok(RowPage { rows, next: None, total: counts.values().sum(), counts })
    }
}
