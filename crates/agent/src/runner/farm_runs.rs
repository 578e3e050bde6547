//! Runs transfers of a farm under leases.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_core::failure::FailureKind;
use longhaul_core::units::Rate;

use super::{insert_run, spawn};
use crate::database::{ClaimedTransfer, DatabaseError, FarmChange, TransferRow};
use crate::error::{AgentError, QueueError};
use crate::farm::{Farm, sleep_since_boot};
use crate::queue::Queue;
use crate::transfer::{QueuePlace, TransferFailure};

/// Listens to the changes of other agents on a thread, which ends with the process.
pub(super) fn listen(queue: &Arc<Queue>) -> Result<(), AgentError> {
    let Some(listener) = queue.database(|database| database.listener()) else { return Ok(()) };
    let queue = Arc::clone(queue);
    let report = move |change| match change {
        FarmChange::Work => queue.runs.wake(),
        FarmChange::Show => {
            queue.events.resync();
            queue.tell_stats();
        }
    };
    let listening = thread::Builder::new().name("farm".into()).spawn(move || listener.run(report));
    listening.map(drop).map_err(AgentError::Thread)
}

/// Renews leases in time, and ends runs that have lost theirs; returns the time until the next
/// renewal.
pub(super) fn tend(queue: &Queue, farm: &Farm) -> Result<Duration, QueueError> {
    let is_due = farm.until_renewal().is_zero();
    let held = match is_due {
        true => queue.renew_leases(farm)?,
        false => queue.database(|database| database.held())?,
    };
    for live in queue.runs.all() {
        match held.iter().find(|held| held.id == live.id && held.epoch == live.epoch) {
            // Other agents may have changed them.
            Some(held) => {
                *live.place.lock() = QueuePlace { priority: held.priority, position: held.position };
                live.limit.set(held.limit_bps.map(Rate::bits_per_sec));
            }
            None => live.cancel.cancel(),
        }
    }
    for held in held {
        let is_run = queue.runs.get(held.id).is_some_and(|live| live.epoch == held.epoch);
        // The answer to a claim was lost with the connection. Without effect on a run that has just
        // stored its end.
        if !is_run {
            queue.database(|database| database.release(held.id, held.epoch))?;
        }
    }
    if is_due {
        queue.report_to_farm(farm)?;
        queue.events.resync();
    }
    Ok(farm.until_renewal())
}

/// Ends runs whose leases could not be renewed, on a thread of its own, which ends with the
/// process: the runner may wait for the database.
pub(super) fn watch_leases(queue: &Arc<Queue>) -> Result<(), AgentError> {
    if queue.farm.is_none() {
        return Ok(());
    }
    let queue = Arc::clone(queue);
    let watch = move || {
        while let Some(farm) = &queue.farm {
            let left = farm.until_end();
            if left.is_zero() {
                end_runs(&queue, farm);
            }
            // A run that begins later began with a lease.
            sleep_since_boot(if left.is_zero() { farm.interval() / 4 } else { left });
        }
    };
    let watching = thread::Builder::new().name("leases".into()).spawn(watch);
    watching.map(drop).map_err(AgentError::Thread)
}

/// Ends all runs: other agents may soon have their transfers.
fn end_runs(queue: &Queue, farm: &Farm) {
    let live = queue.runs.all();
    if live.iter().any(|live| !live.cancel.is_cancelled()) {
        tracing::warn!("what runs ends: its lease of {} s could not be renewed", farm.lease.as_secs());
    }
    live.iter().for_each(|live| live.cancel.cancel());
}

/// Leases up to `most` transfers, and runs them on threads that it adds to `threads`.
pub(super) fn start(
    queue: &Arc<Queue>,
    farm: &Farm,
    most: usize,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), DatabaseError> {
    let now = queue.now();
    let claimed = queue.database(|database| database.claim(most, now, farm.lease))?;
    let has_worker = claimed.iter().any(ClaimedTransfer::is_worker);
    for claimed in claimed {
        let (id, epoch) = (claimed.id, claimed.epoch);
        let started = match claimed.row {
            Ok(row) => start_leased(queue, row).map(|thread| threads.extend(thread)),
            Err(error) => refuse(queue, (id, epoch), &error),
        };
        // The lease is released with those that have no run.
        if let Err(error) = started {
            tracing::warn!("transfer {id} is leased and not started: {error}");
        }
    }
    if has_worker {
        // Further workers of the plan were locked while one was chosen: other agents have passed
        // over them, and transfers behind them may run here.
        queue.runs.wake();
        queue.database(|database| database.call_agents())?;
    }
    Ok(())
}

/// Ends a transfer of another version, which no agent of this version can run.
fn refuse(queue: &Queue, lease: (i64, i64), error: &DatabaseError) -> Result<(), DatabaseError> {
    let message =
        format!("it is of another version of longhaul ({error}): use one version on all hosts, and retry it");
    let exit_code = (queue.exit_code)(FailureKind::Config);
    let failure = TransferFailure { message, exit_code, file_exists: false };
    queue.database(|database| database.refuse(lease, &failure, queue.now()))?;
    queue.events.resync();
    // Another one may run in its place.
    queue.runs.wake();
    Ok(())
}

fn start_leased(queue: &Arc<Queue>, row: TransferRow) -> Result<Option<JoinHandle<()>>, DatabaseError> {
    let (id, epoch) = (row.transfer.id, row.epoch);
    // An earlier run that has lost its lease may still end.
    let thread = insert_run(queue, &row).and_then(|live| spawn(queue, live, row));
    if thread.is_none() {
        queue.database(|database| database.release(id, epoch))?;
    }
    Ok(thread)
}
