//! Runs what is queued: a thread that sleeps until something changes, and a thread for each running transfer.

mod execute;
mod observe;
mod records;
mod run;
mod tree;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_core::queue_plan::{self, Active, WeekTime};
use longhaul_core::units::Rate;
use longhaul_sys::local_time::local_time;

use crate::database::{DatabaseError, Row};
use crate::error::AgentError;
use crate::live::Live;
use crate::queue::{Queue, unix_now};
use crate::transfer::TransferState;

/// How long the runner sleeps at most while something waits for a time: a wall clock that is set is noticed within it.
const CLOCK_CHECK: Duration = Duration::from_secs(30);
/// After how long a database that cannot be used is tried again.
const DATABASE_RETRY: Duration = Duration::from_secs(5);

/// Starts the runner.
///
/// # Errors
/// [`AgentError`].
pub(crate) fn start(queue: Arc<Queue>) -> Result<JoinHandle<()>, AgentError> {
    recover(&queue)?;
    thread::Builder::new().name("runner".into()).spawn(move || work(&queue)).map_err(AgentError::Thread)
}

/// Settles what an agent that was killed had left running: a file that has its final name is done, the rest waits for its turn.
fn recover(queue: &Queue) -> Result<(), DatabaseError> {
    queue.database(|database| {
        for row in database.running()? {
            let id = row.transfer.id;
            if let Some(end) = run::completed_before(&row) {
                tracing::info!("transfer {id} had been completed: {}", row.transfer.path);
                database.end(id, TransferState::Done, &end, unix_now())?;
            } else {
                database.set_state(id, TransferState::Queued, unix_now())?;
            }
        }
        Ok(())
    })
}

fn work(queue: &Arc<Queue>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !queue.is_stopping() {
        let most = match step(queue, &mut threads) {
            Ok(most) => most,
            Err(error) => {
                tracing::error!("{error}; trying again in {} s", DATABASE_RETRY.as_secs());
                Some(DATABASE_RETRY)
            }
        };
        queue.wait(most);
        threads.retain(|thread| !thread.is_finished());
    }
    for thread in threads {
        // A panic has been reported by its hook.
        let _ = thread.join();
    }
}

/// Starts and stops what is due; returns how long nothing happens by itself.
fn step(queue: &Arc<Queue>, threads: &mut Vec<JoinHandle<()>>) -> Result<Option<Duration>, DatabaseError> {
    let now = unix_now();
    let settings = queue.settings();
    // A schedule is checked before it is kept.
    let windows = settings.windows().unwrap_or_default();
    let limits = queue_plan::allowed(settings.usual(), &windows, week_time(now));
    queue.limit.set(limits.rate);
    let waiting = promote(queue, now)?;
    let live = queue.all_live();
    let active: Vec<_> =
        live.iter().filter(|live| !queue.is_offered(live.id)).map(|live| active(live)).collect();
    let plan = queue_plan::plan(limits.concurrent, &active);
    for live in live.iter().filter(|live| plan.stop.contains(&live.id)) {
        live.cancel.cancel();
    }
    if plan.start > 0 {
        // Those that still stop may be queued again already.
        let next = queue.database(|database| database.next_queued(plan.start + live.len()))?;
        let is_free = |row: &Row| queue.live(row.transfer.id).is_none() && !queue.is_offered(row.transfer.id);
        let free = next.into_iter().filter(is_free);
        for row in free.take(plan.start) {
            threads.extend(start_run(queue, row)?);
        }
    }
    if queue.all_live().is_empty() {
        longhaul_sys::memory::release_unused();
    }
    Ok(waiting.or((!windows.is_empty()).then_some(CLOCK_CHECK)).map(|wait| wait.min(CLOCK_CHECK)))
}

/// Queues what was waiting for a time that has come; returns how long the next one waits.
fn promote(queue: &Queue, now: i64) -> Result<Option<Duration>, DatabaseError> {
    let mut wait = None::<Duration>;
    let mut due = Vec::new();
    queue.database(|database| {
        for row in database.scheduled()? {
            let left = |at: i64| Duration::from_secs(at.saturating_sub(now).max(1).cast_unsigned());
            match (row.retry_at, row.transfer.at) {
                (Some(retry_at), _) if !queue_plan::is_retry_due(retry_at, now) => {
                    wait = Some(wait.unwrap_or(Duration::MAX).min(left(retry_at)));
                }
                (None, Some(at)) if at > now => wait = Some(wait.unwrap_or(Duration::MAX).min(left(at))),
                _ => {
                    database.set_state(row.transfer.id, TransferState::Queued, now)?;
                    due.push(row.transfer.id);
                }
            }
        }
        Ok::<_, DatabaseError>(())
    })?;
    for id in due {
        // It may have been removed meanwhile.
        let _ = queue.changed(id);
    }
    Ok(wait)
}

fn active(live: &Live) -> Active {
    Active {
        id: live.id,
        priority: live.priority.load(Ordering::Relaxed),
        position: live.position.load(Ordering::Relaxed),
        stopping: live.cancel.is_cancelled(),
    }
}

/// Starts a transfer on a thread of its own, unless it is no longer queued.
pub(crate) fn start_run(queue: &Arc<Queue>, row: Row) -> Result<Option<JoinHandle<()>>, DatabaseError> {
    let id = row.transfer.id;
    let limit = queue.limit.within(row.transfer.limit_bps.map(Rate::bits_per_sec));
    let live = Arc::new(Live::new(&row.transfer, limit));
    // Before the state says so: what is paused from now on finds it.
    queue.insert_live(Arc::clone(&live));
    if queue.is_stopping() {
        // The agent may have cancelled all runs before this one was among them.
        queue.remove_live(id);
        return Ok(None);
    }
    match queue.database(|database| database.begin(id, unix_now())) {
        Ok(true) => {}
        other => {
            queue.remove_live(id);
            return other.map(|_| None);
        }
    }
    let (theirs, name) = (Arc::clone(queue), format!("transfer-{id}"));
    let spawned = thread::Builder::new().name(name).spawn(move || run::run(&theirs, &live, &row));
    match spawned {
        Ok(thread) => Ok(Some(thread)),
        Err(error) => {
            tracing::warn!("cannot start a thread for transfer {id}: {error}");
            queue.remove_live(id);
            queue.database(|database| database.set_state(id, TransferState::Queued, unix_now()))?;
            Ok(None)
        }
    }
}

fn week_time(now: i64) -> WeekTime {
    // A year that does not fit has no schedule of its own.
    let time = local_time(now).unwrap_or(longhaul_sys::local_time::LocalTime { weekday: 0, second: 0 });
    WeekTime { weekday: time.weekday, second: time.second }
}

#[cfg(test)]
mod tests;
