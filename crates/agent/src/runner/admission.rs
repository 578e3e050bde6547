//! Admits transfers: which start, which stop, and when that is decided again.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_core::queue_admission::{self, Active, WeekTime};
use longhaul_sys::local_time::local_time;

use super::{farm_runs, start_run};
use crate::database::{DatabaseError, TransferRow};
use crate::error::QueueError;
use crate::live::Live;
use crate::queue::{Queue, unix_now};
use crate::transfer::{QueuePlace, TransferKind};

/// The maximum sleep of the runner while a transfer is scheduled, within which a change of the wall
/// clock is noticed.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// Starts and stops transfers that are due; returns the time until the next scheduled change.
pub(super) fn step(
    queue: &Arc<Queue>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Option<Duration>, QueueError> {
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
        let is_free = |row: &TransferRow| {
            queue.runs.get(row.transfer.id).is_none() && !queue.is_offered(row.transfer.id)
        };
        let mut plans = HashSet::new();
        // One worker of each plan.
        let is_first = |row: &TransferRow| {
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
pub(super) fn promote(queue: &Queue, now: i64) -> Result<Option<Duration>, DatabaseError> {
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

fn week_time(now: i64) -> WeekTime {
    // An unrepresentable year has no schedule.
    local_time(now).unwrap_or(WeekTime { weekday: 0, second: 0 })
}
