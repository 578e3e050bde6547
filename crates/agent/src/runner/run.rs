//! One run of a transfer, from its request to its final state in the database.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::event::{Done, Event};
use longhaul_core::failure::FailureKind;
use longhaul_engine::sink::part_file;

use super::execute::{self, RunFailure};
use super::observe::RunObserver;
use super::record_retention;
use super::retries::{RunRetries, state_after};
use crate::database::{RunEnd, TransferRow};
use crate::live::Live;
use crate::queue::Queue;
use crate::transfer::{FileProgress, TransferFailure, TransferKind, TransferState};

/// The interval between attempts to store a result.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Runs a transfer to its end, and records the result.
pub(super) fn run(queue: &Arc<Queue>, live: &Arc<Live>, row: &TransferRow) {
    if let Ok(transfer) = queue.transfer(live.id) {
        queue.tell(&transfer);
        queue.tell_stats();
    }
    // In a farm, the last agent may have been lost between the end of the file and that of its run.
    let (state, end) = match completed_before(row) {
        Some(end) => (TransferState::Done, end),
        None => execute_observed(queue, live, row),
    };
    store(queue, live.id, state, &end);
    queue.runs.remove(live.id);
    // The transfer may have been removed meanwhile.
    let _ = queue.changed(live.id);
    queue.tell_stats();
    record_retention::prune(&queue.records());
    queue.runs.wake();
}

/// Executes a transfer, and records its events; returns its state after that.
fn execute_observed(queue: &Arc<Queue>, live: &Arc<Live>, row: &TransferRow) -> (TransferState, RunEnd) {
    let began = Instant::now();
    let observer = RunObserver::begin(queue, live, &row.transfer);
    let execution = catch_unwind(AssertUnwindSafe(|| execute::execute(queue, live, row, &observer)));
    let result = execution.unwrap_or_else(|_| {
        let message = "an internal error ended the transfer; please report it".to_owned();
        Err(RunFailure::new(FailureKind::Internal, message))
    });
    observer.end(began.elapsed(), &result);
    state_after_run(queue, live, row, result)
}

/// Decides the state of a transfer after its run.
fn state_after_run(
    queue: &Queue,
    live: &Live,
    row: &TransferRow,
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
    end.progress.run.goodput_bps = 0;
    if failure.kind == FailureKind::Interrupted || live.cancel.is_cancelled() {
        // The state of a paused or cancelled transfer is already stored.
        return (TransferState::Queued, end);
    }
    let retries = RunRetries::after(&failure, &end, queue.settings().retries, queue.farm.is_some());
    let has_worked = row.part.is_some() || live.first_answer().is_some();
    let state = state_after(failure.kind, row, has_worked, retries.delay.is_some());
    if let Some(delay) = retries.delay.filter(|_| state == TransferState::Scheduled) {
        end.retry_at = Some(queue.now().saturating_add(delay.as_secs().cast_signed()));
        (end.attempts, end.busy_retries) = (retries.attempts, retries.busy_retries);
    }
    end.error = Some(TransferFailure {
        message: failure.message,
        exit_code: (queue.exit_code)(failure.kind),
        file_exists: failure.file_exists,
    });
    (state, end)
}

fn end_of(live: &Live, row: &TransferRow, path: Option<String>) -> RunEnd {
    let progress = live.progress_after(&row.transfer.progress);
    // Earlier failures count no longer after a run that has extended the file or, as a worker,
    // whose bytes are those of one run, has done a unit.
    let has_progressed = match row.transfer.kind {
        TransferKind::Plan => progress.run.units.is_some_and(|units| units.done > 0),
        _ => progress.bytes > row.transfer.progress.bytes,
    };
    let (attempts, busy_retries) = match has_progressed {
        true => (0, 0),
        false => (row.attempts, row.busy_retries),
    };
    RunEnd { progress, path, attempts, busy_retries, epoch: row.epoch, ..RunEnd::default() }
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
pub(super) fn completed_before(row: &TransferRow) -> Option<RunEnd> {
    let part = row.part.as_ref().filter(|part| row.has_file_at(&part.target))?;
    let size = std::fs::metadata(&part.target).ok()?.len();
    let complete = row.transfer.kind == TransferKind::Get
        && row.transfer.progress.size.is_none_or(|known| known == size);
    if complete {
        part_file::remove_leftovers(&part.target);
    }
    complete.then(|| RunEnd {
        progress: FileProgress { bytes: size, size: Some(size), ..row.transfer.progress.clone() },
        path: Some(part.target.display().to_string()),
        epoch: row.epoch,
        ..RunEnd::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Endpoints, TransferRequest};
    use crate::scope::Scope;

    #[test]
    fn run_that_extends_the_file_makes_earlier_failures_count_no_longer() {
        let (_dir, queue) = crate::runner::tests::queue();
        let request = TransferRequest::of_urls(vec!["http://h/f".to_owned()]);
        let id = queue.add(vec![request], Scope::All).unwrap()[0].id;
        let row = TransferRow { attempts: 3, busy_retries: 2, ..queue.row(id).unwrap() };
        let live = Live::new(&row.transfer, row.epoch, queue.runs.limit.clone());
        let counts = || {
            let end = end_of(&live, &row, None);
            (end.attempts, end.busy_retries)
        };
        assert_eq!(counts(), (3, 2));
        live.note_total(1, 1, 1);
        assert_eq!(counts(), (0, 0));
    }

    #[test]
    fn worker_of_a_plan_fails_for_good_after_its_retries_unless_one_has_done_a_unit() {
        let (_dir, queue) = crate::runner::tests::queue();
        let request = TransferRequest {
            endpoints: Endpoints { plan: Some("/p".into()), ..Endpoints::default() },
            ..TransferRequest::default()
        };
        let id = queue.add(vec![request], Scope::All).unwrap()[0].id;
        let mut row = queue.row(id).unwrap();
        // Each run receives other numbers of bytes, and fails for a reason that may pass.
        let mut failed = |run: u64, units_done: u32| {
            let live = Live::new(&row.transfer, row.epoch, queue.runs.limit.clone());
            live.note_plan(None, 9);
            live.note_total(run % 3, run % 3, 1);
            (0..units_done).for_each(|_| live.note_unit());
            let failure = RunFailure::new(FailureKind::Temporary, "busy");
            let (state, end) = state_after_run(&queue, &live, &row, Err(failure));
            (row.attempts, row.transfer.progress.bytes) = (end.attempts, end.progress.bytes);
            (state, end.error.unwrap().message)
        };
        let retries = u64::from(queue.settings().retries);
        for run in 0..retries {
            assert_eq!(failed(run, 0).0, TransferState::Scheduled, "{run}");
        }
        assert_eq!(failed(retries, 0), (TransferState::Failed, "busy".to_owned()));
        assert_eq!(failed(0, 1).0, TransferState::Scheduled, "earlier failures no longer count");
        for run in 1..retries {
            assert_eq!(failed(run, 0).0, TransferState::Scheduled, "{run}");
        }
        assert_eq!(failed(0, 0).0, TransferState::Failed);
    }
}
