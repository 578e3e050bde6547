//! Listings of the queue: pages of transfers, and totals.

use serde::{Deserialize, Serialize};

use super::Queue;
use crate::database::{PageCursor, RowPage};
use crate::error::QueueError;
use crate::transfer::{Transfer, TransferState};

/// The totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Stats {
    /// The number of running transfers.
    pub active: u64,
    /// The number of queued and scheduled transfers.
    pub waiting: u64,
    /// The sum of the rates in bits per second.
    pub goodput_bps: u64,
    /// The program's version.
    pub version: String,
    /// The agent's process id.
    pub pid: u32,
}

/// A page of transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TransferPage {
    /// The transfers.
    pub transfers: Vec<Transfer>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
    /// The number of transfers on all pages.
    pub total: u64,
    /// The number of transfers in each state.
    pub counts: std::collections::BTreeMap<String, u64>,
}

impl Queue {
    /// Returns a page of transfers, from running to most recently ended.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for an invalid cursor.
    pub fn page(
        &self,
        state: Option<TransferState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<TransferPage, QueueError> {
        let after = after.map(str::parse::<PageCursor>).transpose().map_err(QueueError::Invalid)?;
        let page = self.database(|database| database.page(state, after, limit))?;
        Ok(self.shown_page(page))
    }

    /// Returns the most recently added transfers, latest first.
    ///
    /// # Errors
    /// [`QueueError::Database`].
    pub fn newest(&self, limit: usize) -> Result<TransferPage, QueueError> {
        let page = self.database(|database| database.newest(limit))?;
        Ok(self.shown_page(page))
    }

    fn shown_page(&self, page: RowPage) -> TransferPage {
        TransferPage {
            transfers: page.rows.into_iter().map(|row| self.shown(row)).collect(),
            next: page.next.map(|next| next.to_string()),
            total: page.total,
            counts: page.counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }

    /// Returns the totals.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn stats(&self) -> Result<Stats, QueueError> {
        let counts = self.database(|database| database.count())?;
        let count = |state: TransferState| counts.get(state.name()).copied().unwrap_or_default();
        let live = self.runs.all();
        Ok(Stats {
            active: live.len() as u64,
            waiting: count(TransferState::Queued) + count(TransferState::Scheduled),
            goodput_bps: live.iter().map(|live| live.goodput()).sum(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        })
    }
}
