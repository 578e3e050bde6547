//! Operations of clients on one transfer.

use longhaul_core::units::Rate;

use super::Queue;
use crate::database::{Database, DatabaseError};
use crate::error::QueueError;
use crate::scope::Scope;
use crate::settings::check_limit;
use crate::transfer::{Transfer, TransferState};

impl Queue {
    /// Changes the state of a transfer if its current state permits it.
    fn change(
        &self,
        id: i64,
        wanted: &'static str,
        allowed: impl Fn(TransferState) -> bool,
        change: impl FnOnce(&mut Database, &Transfer) -> Result<(), DatabaseError>,
    ) -> Result<Transfer, QueueError> {
        self.atomically(|database| {
            let transfer = database.get_locked(id)?.ok_or(QueueError::NotFound(id))?.transfer;
            if !allowed(transfer.state) {
                return Err(QueueError::WrongState { id, state: transfer.state, wanted });
            }
            Ok(change(database, &transfer)?)
        })?;
        self.runs.wake();
        let changed = self.changed(id);
        self.tell_stats();
        changed
    }

    /// Pauses a transfer; fetched bytes are kept.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn pause(&self, id: i64) -> Result<Transfer, QueueError> {
        self.halt(id, TransferState::Paused)
    }

    /// Resumes a transfer.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn resume(&self, id: i64) -> Result<Transfer, QueueError> {
        use TransferState::{Paused, Queued, Running, Scheduled, WaitingLink};
        let allowed = |state| matches!(state, Paused | WaitingLink | Scheduled | Queued | Running);
        self.change(id, "resumed", allowed, |database, transfer| match transfer.state {
            Queued | Running => Ok(()),
            _ => database.requeue(id, Queued),
        })
    }

    /// Cancels a transfer; its partial file stays.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn cancel(&self, id: i64) -> Result<Transfer, QueueError> {
        self.halt(id, TransferState::Cancelled)
    }

    /// Ends the run of a transfer, which gets this state.
    fn halt(&self, id: i64, state: TransferState) -> Result<Transfer, QueueError> {
        let allowed = |state: TransferState| !state.is_ended();
        let now = self.now();
        let halted = self.change(id, state.name(), allowed, |database, _| database.set_state(id, state, now));
        self.runs.cancel(id);
        halted
    }

    /// Retries a failed or cancelled transfer.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn retry(&self, id: i64) -> Result<Transfer, QueueError> {
        use TransferState::{Cancelled, Failed, Scheduled, WaitingLink};
        let allowed = |state| matches!(state, Failed | Cancelled | WaitingLink | Scheduled);
        self.change(id, "retried", allowed, |database, _| database.requeue(id, TransferState::Queued))
    }

    /// Replaces the link of a transfer, which resumes from its partial file.
    ///
    /// # Errors
    /// [`QueueError`].
    pub(crate) fn refresh(
        &self,
        id: i64,
        url: &str,
        headers: Option<Vec<String>>,
        scope: Scope,
    ) -> Result<Transfer, QueueError> {
        let mut request = scope.permitted(self.request(id)?)?;
        request.refresh(url, headers)?;
        let (sealed, shown) = (self.seal(&request), request.shown_urls());
        let allowed = |state| !matches!(state, TransferState::Done | TransferState::Running);
        self.change(id, "given another link", allowed, |database, transfer| {
            database.set_request(id, &sealed, &shown)?;
            match transfer.state {
                TransferState::Paused | TransferState::Queued => Ok(()),
                _ => database.requeue(id, TransferState::Queued),
            }
        })
    }

    /// Moves a transfer before another one, or to the end.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn place(&self, id: i64, before: Option<i64>) -> Result<Transfer, QueueError> {
        self.row(id)?;
        if let (false, Some(before)) = (self.database(|database| database.place(id, before))?, before) {
            return Err(QueueError::NotFound(before));
        }
        self.replaced(id)
    }

    /// Changes the priority or the rate limit of a transfer; a new limit applies to a running one
    /// at once.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn patch(
        &self,
        id: i64,
        priority: Option<i64>,
        limit: Option<Option<u64>>,
    ) -> Result<Transfer, QueueError> {
        self.row(id)?;
        check_limit(limit.flatten())?;
        priority.map_or(Ok(()), crate::request::check_priority)?;
        self.database(|database| database.patch(id, priority, limit))?;
        if let (Some(limit), Some(live)) = (limit, self.runs.get(id)) {
            live.limit.set(limit.map(Rate::bits_per_sec));
        }
        self.replaced(id)
    }

    /// Informs the runner and clients of a transfer's new position.
    fn replaced(&self, id: i64) -> Result<Transfer, QueueError> {
        let transfer = self.changed(id)?;
        if let Some(live) = self.runs.get(id) {
            *live.place.lock() = transfer.place;
        }
        self.runs.wake();
        Ok(transfer)
    }

    /// Removes an ended transfer from the list, and its record; with `files` also its partial
    /// files. Complete files stay.
    ///
    /// # Errors
    /// [`QueueError`]; then the transfer stays in the list.
    pub fn remove(&self, id: i64, files: bool) -> Result<(), QueueError> {
        if self.row(id)?.transfer.state.is_ended() {
            // A cancelled run stops a moment after its state has changed.
            self.runs.wait_for_end(id);
        }
        let row = self.row(id)?;
        if files && row.transfer.state.is_ended() {
            self.remove_partial_files(&row)?;
        }
        let live = self.runs.get(id).is_some();
        self.atomically(|database| {
            let state = database.get_locked(id)?.ok_or(QueueError::NotFound(id))?.transfer.state;
            if !state.is_ended() || live {
                return Err(QueueError::WrongState { id, state, wanted: "removed before it has ended" });
            }
            Ok(database.remove(id)?)
        })?;
        // The transfer may have no record.
        let _ = std::fs::remove_file(self.record(id));
        if self.is_offered(id) {
            return Ok(());
        }
        self.events.send("removed", || format!("{{\"id\":{id}}}"));
        self.tell_stats();
        Ok(())
    }
}
