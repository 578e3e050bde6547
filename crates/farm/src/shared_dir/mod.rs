//! Claims in the plan's directory, on a file system that all workers see; see the crate's
//! documentation for the invariants.

mod claims;
pub(crate) mod heartbeat;
mod liveness;
pub(crate) mod unit_log;
mod worker_state;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use crate::budget::{FarmLimits, HostUse};
use crate::error::FarmError;
use crate::plan::Plan;
use crate::store::{Claim, ClaimStore, FarmState, NextUnit, OtherWorker, Tally, UnitEnd, WorkerProgress};
use crate::unit::UnitId;
pub(crate) use claims::Claims;
use heartbeat::Heartbeat;
use liveness::Liveness;
use unit_log::{LogEntry, UnitLog, UnitLogWriter};
use worker_state::{WorkerState, ranges_of};

pub(crate) const CLAIMS: &str = "claims";
pub(crate) const WORKERS: &str = "workers";
pub(crate) const LOG: &str = "log";

/// The polls in which a worker must have been silent until it is expired. They are spread over the
/// lease, and the first one may follow its last sign of life at once.
pub(crate) const SILENT_POLLS: u32 = 6;

/// Makes the directories of a plan's state.
pub(crate) fn make_directories(state: &Path) -> io::Result<()> {
    fs::create_dir(state)?;
    [CLAIMS, WORKERS, LOG].iter().try_for_each(|name| fs::create_dir(state.join(name)))
}

/// Returns the interval of heartbeats, and of polls of those of others.
pub fn beat_interval(lease: Duration) -> Duration {
    lease / (SILENT_POLLS - 1)
}

/// The claims of one worker.
#[derive(Debug)]
pub struct SharedDirStore {
    plan_state: PathBuf,
    workers: PathBuf,
    host: String,
    units: u32,
    interval: Duration,
    claims: Claims,
    state: Mutex<WorkerState>,
}

impl SharedDirStore {
    /// Joins the workers of a plan.
    ///
    /// # Errors
    /// The plan's directory cannot be written.
    pub fn join(plan: &Plan) -> Result<Self, FarmError> {
        // Later, they could only be warned of.
        FarmLimits::of(plan)?;
        let heartbeat = Heartbeat::of_this_process();
        let units = plan.header().counts.units;
        let [logs, workers, claims] = [LOG, WORKERS, CLAIMS].map(|name| plan.state().join(name));
        let writer = UnitLogWriter::create(&logs, heartbeat.worker())?;
        let state = WorkerState {
            log: UnitLog::new(logs, units),
            writer,
            liveness: Liveness::new(workers.clone()),
            mine: BTreeMap::new(),
            failed_here: HashMap::new(),
            // Workers begin at different places, and so rarely claim one unit at a time.
            cursor: fastrand::u32(0..units.max(1)),
            joins: plan.joins().into_iter().collect(),
            heartbeat,
        };
        let store = Self {
            plan_state: plan.state(),
            workers,
            host: state.heartbeat.host().to_owned(),
            units,
            interval: beat_interval(plan.header().lease),
            claims: Claims::new(claims, state.heartbeat.worker(), units),
            state: Mutex::new(state),
        };
        // Before the first claim: a claim of a worker without heartbeat is that of one that never
        // lived.
        store.beat(WorkerProgress::default())?;
        Ok(store)
    }

    /// Claims the free unit that is next to the cursor, of those that may be taken.
    fn claim_free(
        &self,
        state: &mut WorkerState,
        claimed: &mut HashMap<UnitId, u64>,
        may_take: impl Fn(&WorkerState, UnitId) -> bool,
    ) -> Result<Option<Claim>, FarmError> {
        let start = state.cursor;
        for mut units in [start..self.units, 0..start] {
            while let Some(unit) = state.log.next_undone(units.clone()) {
                units.start = unit.0 + 1;
                if let Some((join, _)) = state.join_of(unit)
                    && !(may_take(state, unit) && state.may_execute(join))
                {
                    // Neither may any other range of the file, of which there may be a million.
                    units.start = join.0;
                    continue;
                }
                let is_free = !claimed.contains_key(&unit) && !state.mine.contains_key(&unit);
                if !is_free || !state.is_open(unit) || !may_take(state, unit) {
                    continue;
                }
                let epoch = state.log.epoch(unit) + 1;
                let claim = self.try_claim(state, unit, epoch)?;
                if claim.is_some() {
                    state.cursor = unit.0;
                    return Ok(claim);
                }
                claimed.entry(unit).or_insert(epoch);
            }
        }
        Ok(None)
    }

    /// Claims a unit whose worker is expired.
    fn claim_expired(
        &self,
        state: &mut WorkerState,
        claimed: &HashMap<UnitId, u64>,
    ) -> Result<Option<Claim>, FarmError> {
        let holds_range = state.holds_range();
        for (unit, epoch) in claimed {
            if holds_range && state.join_of(*unit).is_some() {
                continue;
            }
            if state.mine.contains_key(unit) || !state.is_open(*unit) {
                continue;
            }
            let Some(holder) = self.claims.holder(*unit, *epoch)? else { continue };
            // A claim of this worker that is not among its units is one whose creation has seemed
            // to fail.
            if holder != self.claims.worker() && !state.liveness.is_expired(&holder) {
                continue;
            }
            let epoch = state.log.epoch(*unit).max(*epoch) + 1;
            if let Some(claim) = self.try_claim(state, *unit, epoch)? {
                tracing::warn!("unit {unit} is taken over from {holder}, which does not execute it");
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    /// Creates a claim; returns it unless another worker was faster, or has ended the unit
    /// meanwhile.
    fn try_claim(
        &self,
        state: &mut WorkerState,
        unit: UnitId,
        epoch: u64,
    ) -> Result<Option<Claim>, FarmError> {
        if !self.claims.create(unit, epoch)? {
            return Ok(None);
        }
        state.log.refresh()?;
        if !state.is_open(unit) || state.log.epoch(unit) >= epoch {
            self.claims.remove(unit, epoch)?;
            return Ok(None);
        }
        state.mine.insert(unit, epoch);
        Ok(Some(Claim { unit, epoch, left_by: state.log.released_by(unit) }))
    }

    /// Returns whether other workers execute what this one may have to complete: ranges of a file
    /// that is not joined. The last of them may have ended since the search for a free unit.
    fn awaits_ranges(
        &self,
        state: &mut WorkerState,
        claimed: &HashMap<UnitId, u64>,
    ) -> Result<bool, FarmError> {
        let mut awaited = Vec::new();
        for (join, ranges) in state.joins.iter().filter(|(join, _)| state.may_execute(**join)) {
            let ranges = ranges_of(*join, *ranges).map(UnitId);
            let mut left = ranges.filter(|range| !state.log.is_done(*range)).peekable();
            if left.peek().is_none() {
                return Ok(true);
            }
            awaited.extend(left.filter_map(|range| Some((range, *claimed.get(&range)?))));
        }
        for (range, epoch) in awaited {
            match self.claims.holder(range, epoch)? {
                Some(holder) if state.liveness.is_expired(&holder) => {}
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns whether this worker still holds a claim; `claimed` has the highest epoch of each
    /// claimed unit.
    fn holds(&self, unit: UnitId, epoch: u64, claimed: &HashMap<UnitId, u64>) -> Result<bool, FarmError> {
        Ok(claimed.get(&unit) == Some(&epoch)
            && self.claims.holder(unit, epoch)?.as_deref() == Some(self.claims.worker()))
    }
}

impl ClaimStore for SharedDirStore {
    fn worker(&self) -> &str {
        self.claims.worker()
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn claim(&self) -> Result<NextUnit, FarmError> {
        let mut state = self.state.lock();
        state.log.refresh()?;
        let mut claimed = self.claims.all()?;
        // No second range, which another host can fetch: a range has several streams.
        let holds_range = state.holds_range();
        let may_take = |state: &WorkerState, unit| !holds_range || state.join_of(unit).is_none();
        if let Some(claim) = self.claim_free(&mut state, &mut claimed, may_take)? {
            return Ok(NextUnit::Claimed(claim));
        }
        if let Some(claim) = self.claim_expired(&mut state, &claimed)? {
            return Ok(NextUnit::Claimed(claim));
        }
        // One of this worker that is not claimed waits for a file system, and can be executed when
        // that answers.
        let is_left = claimed.keys().chain(state.mine.keys()).any(|unit| state.is_open(*unit))
            || state.holds_range()
            || self.awaits_ranges(&mut state, &claimed)?;
        Ok(if is_left { NextUnit::Wait } else { NextUnit::Finished(state.log.tally()) })
    }

    fn claim_next_range(&self) -> Result<Option<Claim>, FarmError> {
        let mut state = self.state.lock();
        let ranges = state.mine.keys().filter(|unit| state.join_of(**unit).is_some()).count();
        // The one that was about to end may have ended meanwhile, and another one be claimed.
        if ranges != 1 {
            return Ok(None);
        }
        state.log.refresh()?;
        self.claim_free(&mut state, &mut self.claims.all()?, |state, unit| state.join_of(unit).is_some())
    }

    fn has_range(&self, unit: UnitId) -> Result<bool, FarmError> {
        let mut state = self.state.lock();
        let Some((join, ranges)) = state.join_of(unit) else { return Ok(false) };
        state.log.refresh()?;
        Ok(ranges_of(join, ranges).any(|range| state.log.is_done(UnitId(range))))
    }

    fn finish(&self, claim: &Claim, end: &UnitEnd) -> Result<(), FarmError> {
        let Claim { unit, epoch, .. } = *claim;
        let mut state = self.state.lock();
        let is_held = self.holds(unit, epoch, &self.claims.all()?)?;
        if !matches!(end, UnitEnd::Hung(_)) {
            state.mine.remove(&unit);
        }
        let entry = match end {
            UnitEnd::Done(done) => LogEntry::Done { bytes: done.bytes, report: done.report.clone() },
            // The result of the worker that holds the unit counts.
            _ if !is_held => return Ok(()),
            UnitEnd::Failed(why) => {
                state.fail_here(unit);
                LogEntry::Failed { why: why.clone(), host: state.heartbeat.host().to_owned() }
            }
            UnitEnd::Hung(why) => {
                LogEntry::Hung { why: why.clone(), host: state.heartbeat.host().to_owned() }
            }
            UnitEnd::Unjoinable(why) => {
                let join = state.join_of(unit).map_or(unit, |(join, _)| join);
                if state.fail_here(join) {
                    let host = state.heartbeat.host().to_owned();
                    // Epoch 0: the claims of that unit are not concerned.
                    state.writer.append(join, 0, LogEntry::Failed { why: why.clone(), host })?;
                }
                LogEntry::Released { worker: self.claims.worker().to_owned() }
            }
            UnitEnd::Released => LogEntry::Released { worker: self.claims.worker().to_owned() },
        };
        state.writer.append(unit, epoch, entry)?;
        if let UnitEnd::Done(done) = end {
            // At once: the log that was appended to may no longer be the one of this name.
            state.log.take(unit, epoch, LogEntry::Done { bytes: done.bytes, report: None });
        }
        if is_held {
            self.claims.remove_up_to(unit, epoch)?;
        }
        Ok(())
    }

    fn beat(&self, progress: WorkerProgress) -> Result<Vec<UnitId>, FarmError> {
        let mut state = self.state.lock();
        let units = state.mine.keys().copied().collect();
        state.heartbeat.advance(progress, units);
        state.heartbeat.store(&self.workers)?;
        state.liveness.poll(self.interval)?;
        if state.mine.is_empty() {
            return Ok(Vec::new());
        }
        let claimed = self.claims.all()?;
        let mut lost = Vec::new();
        for (unit, epoch) in &state.mine {
            if !self.holds(*unit, *epoch, &claimed)? {
                lost.push(*unit);
            }
        }
        Ok(lost)
    }

    fn farm(&self) -> Result<FarmState, FarmError> {
        let limits = FarmLimits::read(&self.plan_state)?;
        let mut state = self.state.lock();
        state.liveness.refresh()?;
        let others = state.liveness.live().filter(|heartbeat| heartbeat.worker() != self.claims.worker());
        let others = others.map(|heartbeat| OtherWorker {
            worker: heartbeat.worker().to_owned(),
            beat: heartbeat.beat,
            host: heartbeat.host().to_owned(),
            rate: heartbeat.progress.rate,
            uses: heartbeat.uses.clone(),
        });
        Ok(FarmState { limits, others: others.collect() })
    }

    fn announce(&self, uses: Vec<HostUse>) {
        self.state.lock().heartbeat.uses = Some(uses);
    }

    fn tally(&self) -> Result<Tally, FarmError> {
        let mut state = self.state.lock();
        state.log.refresh()?;
        Ok(state.log.tally())
    }

    fn leave(&self) -> Result<(), FarmError> {
        let mut state = self.state.lock();
        state.heartbeat.end();
        state.heartbeat.store(&self.workers)
    }
}

/// Forgives the failures of all units that are not done, so that workers try them again; returns
/// their number.
///
/// # Errors
/// The state cannot be read or written.
pub fn retry(plan: &Plan) -> Result<usize, FarmError> {
    let directory = plan.state().join(LOG);
    let mut log = UnitLog::new(directory.clone(), plan.header().counts.units);
    log.refresh()?;
    let failed: Vec<UnitId> = log.failed().map(|(unit, _)| unit).collect();
    if failed.is_empty() {
        return Ok(0);
    }
    let mut writer = UnitLogWriter::create(&directory, &format!("retry-{:016x}", fastrand::u64(..)))?;
    for unit in &failed {
        writer.append(*unit, 0, LogEntry::Retry { failures: log.all_failures(*unit) })?;
    }
    Ok(failed.len())
}

#[cfg(test)]
mod tests;
