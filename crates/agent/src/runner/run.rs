//! One run of a transfer, from its request to its final state in the database.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::event::{Done, Event};
use longhaul_core::failure::FailureKind;
use longhaul_core::queue_plan;
use longhaul_core::retry::Retry;
use longhaul_engine::sink::part_file;

use super::execute::{self, RunFailure};
use super::observe::RunObserver;
use super::records;
use crate::database::{Row, RunEnd};
use crate::live::Live;
use crate::queue::Queue;
use crate::transfer::{Transfer, TransferFailure, TransferKind, TransferState};

/// The interval between attempts to store a result.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Runs a transfer to its end, and records the result.
pub(super) fn run(queue: &Arc<Queue>, live: &Arc<Live>, row: &Row) {
    let began = Instant::now();
    if let Ok(transfer) = queue.transfer(live.id) {
        queue.tell(&transfer);
        queue.tell_stats();
    }
    let observer = RunObserver::begin(queue, live, &row.transfer);
    let execution = catch_unwind(AssertUnwindSafe(|| execute::execute(queue, live, row, &observer)));
    let result = execution.unwrap_or_else(|_| {
        let message = "an internal error ended the transfer; please report it".to_owned();
        Err(RunFailure::new(FailureKind::Internal, message))
    });
    observer.end(began.elapsed(), &result);
    let (state, end) = state_after_run(queue, live, row, result);
    store(queue, live.id, state, &end);
    queue.runs.remove(live.id);
    // The transfer may have been removed meanwhile.
    let _ = queue.changed(live.id);
    queue.tell_stats();
    records::prune(&queue.records());
    queue.runs.wake();
}

/// Decides the state of a transfer after its run.
fn state_after_run(
    queue: &Queue,
    live: &Live,
    row: &Row,
    result: Result<Done, RunFailure>,
) -> (TransferState, RunEnd) {
    let failure = match result {
        Ok(done) => {
            live.note(&Event::Done(Box::new(done.clone())));
            let end = end_of(live, row, Some(done.path.display().to_string()));
            return (TransferState::Done, end);
        }
        Err(failure) => failure,
    };
    let mut end = end_of(live, row, None);
    end.run.goodput_bps = 0;
    if failure.kind == FailureKind::Interrupted || live.cancel.is_cancelled() {
        // The state of a paused or cancelled transfer is already stored.
        return (TransferState::Queued, end);
    }
    let attempts = if end.advanced { 0 } else { row.attempts };
    // The run of an earlier lease, on a host that was stopped or cut off, may hold the file until it finds that out.
    let is_held = failure.is_busy && queue.farm.is_some();
    let attempts = if is_held { 0 } else { attempts };
    let may_retry = is_held || failure.retry != Retry::Never && attempts < queue.settings().retries;
    let has_worked = row.part.is_some() || live.first_answer().is_some();
    let state = state_after(failure.kind, row, has_worked, may_retry);
    if state == TransferState::Scheduled {
        let delay = queue_plan::retry_delay(attempts).as_secs().cast_signed();
        end.retry_at = Some(queue.now().saturating_add(delay));
    }
    end.error = Some(TransferFailure {
        message: failure.message,
        exit_code: (queue.exit_code)(failure.kind),
        file_exists: failure.file_exists,
    });
    (state, end)
}

/// Returns the state after a failure: a link may have expired, a server may recover.
fn state_after(kind: FailureKind, row: &Row, has_worked: bool, may_retry: bool) -> TransferState {
    let of_link = row.transfer.kind == TransferKind::Get
        && row.transfer.urls.first().is_some_and(|url| url.starts_with("http"));
    match kind {
        // A link that has never worked is wrong, not expired.
        FailureKind::Denied | FailureKind::NotFound if of_link && has_worked => TransferState::WaitingLink,
        _ if may_retry => TransferState::Scheduled,
        _ => TransferState::Failed,
    }
}

fn end_of(live: &Live, row: &Row, path: Option<String>) -> RunEnd {
    let mut transfer: Transfer = row.transfer.clone();
    live.show_in(&mut transfer);
    let advanced = transfer.bytes > row.transfer.bytes;
    RunEnd {
        bytes: transfer.bytes,
        size: transfer.size,
        path,
        run: transfer.run,
        advanced,
        epoch: row.epoch,
        ..RunEnd::default()
    }
}

/// Stores the end of a run; while the disk is full, retries as long as the agent runs.
fn store(queue: &Queue, id: i64, state: TransferState, end: &RunEnd) {
    let mut is_logged = false;
    loop {
        let error = match queue.database(|database| database.end(id, state, end, queue.now())) {
            Ok(true) => return,
            Ok(false) => {
                return tracing::warn!(
                    "transfer {id} was given to another run: the end of this one does not count"
                );
            }
            Err(error) => error,
        };
        if !is_logged {
            tracing::error!("the end of transfer {id} cannot be stored yet: {error}");
            is_logged = true;
        }
        if queue.runs.is_stopping() {
            break;
        }
        std::thread::sleep(STORE_RETRY);
    }
}

/// Returns the end of a run that a killed agent could not store: its file has the final name.
pub(super) fn completed_before(row: &Row) -> Option<RunEnd> {
    let part = row.part.as_ref().filter(|part| match row.epoch {
        // Of no farm.
        0 => part.is_at(&part.target),
        _ => part.is_at_on_any_host(&part.target),
    })?;
    let size = std::fs::metadata(&part.target).ok()?.len();
    let complete =
        row.transfer.kind == TransferKind::Get && row.transfer.size.is_none_or(|known| known == size);
    if complete {
        part_file::remove_leftovers(&part.target);
    }
    complete.then(|| RunEnd {
        bytes: size,
        size: Some(size),
        path: Some(part.target.display().to_string()),
        run: row.transfer.run.clone(),
        epoch: row.epoch,
        ..RunEnd::default()
    })
}
