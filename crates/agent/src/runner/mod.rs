//! Runs queued transfers: one thread that sleeps until a change, and one thread per running transfer.

mod execute;
mod farm_runs;
mod files;
mod observe;
mod plan;
mod record_retention;
mod run;
mod tree;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_core::queue_admission::{self, Active, WeekTime};
use longhaul_core::units::Rate;
use longhaul_sys::local_time::local_time;

use crate::database::{DatabaseError, Row};
use crate::error::{AgentError, QueueError};
use crate::farm::Farm;
use crate::live::Live;
use crate::queue::{Queue, unix_now};
use crate::transfer::{QueuePlace, TransferKind, TransferState};

/// The maximum sleep of the runner while a transfer is scheduled, within which a change of the wall clock is noticed.
const CLOCK_CHECK: Duration = Duration::from_secs(30);
/// The interval between retries of the database.
const DATABASE_RETRY: Duration = Duration::from_secs(5);

/// Starts the runner.
///
/// # Errors
/// [`AgentError`].
pub(crate) fn start(queue: Arc<Queue>) -> Result<JoinHandle<()>, AgentError> {
    recover(&queue)?;
    queue.withdraw_offers()?;
    farm_runs::listen(&queue)?;
    farm_runs::watch_leases(&queue)?;
    thread::Builder::new().name("runner".into()).spawn(move || work(&queue)).map_err(AgentError::Thread)
}

/// Settles transfers left running by a killed agent: a file with its final name is done, others are queued again. In a farm
/// their next run sees that, since a shared file system may hang.
fn recover(queue: &Queue) -> Result<(), DatabaseError> {
    let now = queue.now();
    queue.database(|database| {
        for row in database.running()? {
            let id = row.transfer.id;
            let complete = if queue.farm.is_none() { run::completed_before(&row) } else { None };
            if let Some(end) = complete {
                tracing::info!("transfer {id} had been completed: {}", row.transfer.ends.path);
                database.end(id, TransferState::Done, &end, now)?;
            } else {
                database.release(id, row.epoch)?;
            }
        }
        Ok(())
    })
}

fn work(queue: &Arc<Queue>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !queue.runs.is_stopping() {
        let most = match step(queue, &mut threads) {
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

/// Starts and stops transfers that are due; returns the time until the next scheduled change.
fn step(queue: &Arc<Queue>, threads: &mut Vec<JoinHandle<()>>) -> Result<Option<Duration>, QueueError> {
    let now = queue.now();
    let settings = queue.settings();
    // A schedule is validated before it is stored.
    let windows = settings.windows().unwrap_or_default();
    let limits = queue_admission::allowed(settings.usual(), &windows, week_time(unix_now()));
    queue.runs.limit.set(limits.rate);
    let renewal = queue.farm.as_ref().map(|farm| farm_runs::tend(queue, farm)).transpose()?;
    let waiting = promote(queue, now)?;
    let live = queue.runs.all();
    let active: Vec<_> =
        live.iter().filter(|live| !queue.is_offered(live.id)).map(|live| active(live)).collect();
    let plan = queue_admission::plan(limits.concurrent, &active);
    for live in live.iter().filter(|live| plan.stop.contains(&live.id)) {
        live.cancel.cancel();
    }
    if let (Some(farm), 1..) = (&queue.farm, plan.start) {
        farm_runs::start(queue, farm, plan.start, threads)?;
    } else if plan.start > 0 {
        // Transfers that are still stopping may already be queued again.
        let next = queue.database(|database| database.next_queued(plan.start + live.len()))?;
        let is_free =
            |row: &Row| queue.runs.get(row.transfer.id).is_none() && !queue.is_offered(row.transfer.id);
        let mut plans = HashSet::new();
        // One worker of each plan.
        let is_first = |row: &Row| {
            row.transfer.kind != TransferKind::Plan || plans.insert(row.transfer.ends.path.clone())
        };
        for row in next.into_iter().filter(is_free).take(plan.start).filter(is_first) {
            let is_of_plan = row.transfer.kind == TransferKind::Plan;
            let started = start_run(queue, row)?;
            if is_of_plan && started.is_some() {
                // Transfers may wait behind other workers of the plan.
                queue.runs.wake();
            }
            threads.extend(started);
        }
    }
    if queue.runs.all().is_empty() {
        longhaul_sys::memory::release_unused();
    }
    let change = waiting.or((!windows.is_empty()).then_some(CLOCK_CHECK)).map(|wait| wait.min(CLOCK_CHECK));
    Ok(change.into_iter().chain(renewal).min())
}

/// Queues transfers whose scheduled time has passed; returns the time until the next one.
fn promote(queue: &Queue, now: i64) -> Result<Option<Duration>, DatabaseError> {
    let mut wait = None::<Duration>;
    let mut due = Vec::new();
    queue.database(|database| {
        for row in database.scheduled()? {
            let left = |at: i64| Duration::from_secs(at.saturating_sub(now).max(1).cast_unsigned());
            match (row.retry_at, row.transfer.conditions.at) {
                (Some(retry_at), _) if !queue_admission::is_retry_due(retry_at, now) => {
                    wait = Some(wait.unwrap_or(Duration::MAX).min(left(retry_at)));
                }
                (None, Some(at)) if at > now => wait = Some(wait.unwrap_or(Duration::MAX).min(left(at))),
                _ => {
                    if database.promote(row.transfer.id)? {
                        due.push(row.transfer.id);
                    }
                }
            }
        }
        Ok::<_, DatabaseError>(())
    })?;
    for id in &due {
        // The transfer may have been removed meanwhile.
        let _ = queue.changed(*id);
    }
    if !due.is_empty() {
        queue.tell_stats();
    }
    Ok(wait)
}

fn active(live: &Live) -> Active {
    let QueuePlace { priority, position } = *live.place.lock();
    Active { id: live.id, priority, position, stopping: live.cancel.is_cancelled() }
}

/// Starts a transfer on a separate thread, unless it is no longer queued.
pub(crate) fn start_run(queue: &Arc<Queue>, row: Row) -> Result<Option<JoinHandle<()>>, DatabaseError> {
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
fn insert_run(queue: &Queue, row: &Row) -> Option<Arc<Live>> {
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
fn spawn(queue: &Arc<Queue>, live: Arc<Live>, row: Row) -> Option<JoinHandle<()>> {
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

fn week_time(now: i64) -> WeekTime {
    // An unrepresentable year has no schedule.
    local_time(now).unwrap_or(WeekTime { weekday: 0, second: 0 })
}

#[cfg(test)]
pub(crate) mod tests;
