//! Runs queued transfers: one thread that sleeps until a change, and one thread per running
//! transfer.

mod admission;
mod execute;
mod farm_runs;
mod files;
mod observe;
mod plan_worker;
mod record_retention;
mod recovery;
mod retries;
mod run;
mod tree;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_core::units::Rate;

use crate::database::{DatabaseError, TransferRow};
use crate::error::AgentError;
use crate::farm::Farm;
use crate::live::Live;
use crate::queue::{Queue, unix_now};
use crate::transfer::TransferState;

/// The interval between retries of the database.
const DATABASE_RETRY: Duration = Duration::from_secs(5);

/// Starts the runner.
///
/// # Errors
/// [`AgentError`].
pub(crate) fn start(queue: Arc<Queue>) -> Result<JoinHandle<()>, AgentError> {
    recovery::recover(&queue)?;
    queue.withdraw_offers()?;
    farm_runs::listen(&queue)?;
    farm_runs::watch_leases(&queue)?;
    thread::Builder::new().name("runner".into()).spawn(move || work(&queue)).map_err(AgentError::Thread)
}

fn work(queue: &Arc<Queue>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !queue.runs.is_stopping() {
        let most = match admission::step(queue, &mut threads) {
            Ok(most) => most,
            Err(error) => {
                let lease = queue.farm.as_ref().map_or(DATABASE_RETRY, Farm::interval);
                let wait = DATABASE_RETRY.min(lease);
                tracing::error!("{error}; trying again in {:.0} s", wait.as_secs_f64());
                Some(wait)
            }
        };
        queue.runs.wait(most);
        threads.retain(|thread| !thread.is_finished());
    }
    for thread in threads {
        // The panic hook has already reported it.
        let _ = thread.join();
    }
    // The others see a host that is lost where this fails.
    if queue.farm.is_some() {
        let _ = queue.database(|database| database.leave());
    }
}

/// Starts a transfer on a separate thread, unless it is no longer queued.
pub(crate) fn start_run(
    queue: &Arc<Queue>,
    row: TransferRow,
) -> Result<Option<JoinHandle<()>>, DatabaseError> {
    let id = row.transfer.id;
    // Inserted before the state changes, so that a later pause finds the run.
    let Some(live) = insert_run(queue, &row) else { return Ok(None) };
    match queue.database(|database| database.begin(id, queue.now())) {
        Ok(true) => {}
        other => {
            queue.runs.remove(id);
            return other.map(|_| None);
        }
    }
    let thread = spawn(queue, live, row);
    if thread.is_none() {
        queue.database(|database| database.set_state(id, TransferState::Queued, unix_now()))?;
    }
    Ok(thread)
}

/// Inserts a run, unless the transfer has one that may still end, or the agent ends.
fn insert_run(queue: &Queue, row: &TransferRow) -> Option<Arc<Live>> {
    let limit = queue.runs.limit.within(row.transfer.conditions.limit_bps.map(Rate::bits_per_sec));
    let live = Arc::new(Live::new(&row.transfer, row.epoch, limit));
    let is_inserted = queue.runs.insert(Arc::clone(&live));
    if is_inserted && queue.runs.is_stopping() {
        // The agent may have cancelled all runs before this one was inserted.
        queue.runs.remove(live.id);
        return None;
    }
    is_inserted.then_some(live)
}

/// Starts the thread of an inserted run, or removes the run.
fn spawn(queue: &Arc<Queue>, live: Arc<Live>, row: TransferRow) -> Option<JoinHandle<()>> {
    let (id, theirs) = (row.transfer.id, Arc::clone(queue));
    let run = move || run::run(&theirs, &live, &row);
    let spawned = thread::Builder::new().name(format!("transfer-{id}")).spawn(run);
    spawned
        .inspect_err(|error| {
            tracing::warn!("cannot start a thread for transfer {id}: {error}");
            queue.runs.remove(id);
        })
        .ok()
}

#[cfg(test)]
pub(crate) mod tests;
