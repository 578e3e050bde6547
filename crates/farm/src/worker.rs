//! One worker: turns units into files to transfer, and ends a unit with its last file.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::rate_limit::RateLimit;
use parking_lot::Mutex;
use url::Url;

use crate::error::FarmError;
use crate::explanation::UnitReport;
use crate::host_gate::Admission;
use crate::plan::Plan;
use crate::presence::Presence;
use crate::shared_dir::beat_interval;
use crate::store::{Claim, ClaimStore, NextUnit, Tally, UnitDone, UnitEnd};
use crate::target_directory::Target;
use crate::unit::{FilePart, UnitId};
pub use crate::unit_run::{FileEnd, FileTask};
use crate::unit_run::{RunState, UnitRun};

/// The units that a worker without a single file may fail at by what may be its host's fault. More would use up the
/// attempts of units that other hosts can fetch.
const MAX_REFUSED_UNITS: u32 = 3;

/// A worker of a plan. Its methods may be called from several threads.
pub struct Worker<'a> {
    plan: &'a Plan,
    store: &'a dyn ClaimStore,
    /// `None` if the worker uploads.
    target: Option<Target>,
    cancel: Cancel,
    /// The files of the claimed unit that are not begun.
    waiting: Mutex<VecDeque<FileTask>>,
    under_way: Mutex<HashMap<UnitId, Arc<UnitRun>>>,
    /// Whether to claim no further unit.
    retires: AtomicBool,
    end: Mutex<Option<Result<NextUnit, FarmError>>>,
    /// Whether a file was received, or was there.
    has_file: AtomicBool,
    /// The units that have failed by what may be at fault on this host, before it received a file.
    refused_units: AtomicU32,
    presence: Presence<'a>,
}

impl<'a> Worker<'a> {
    /// Creates a worker.
    ///
    /// # Errors
    /// The target cannot be opened, or is not mounted.
    pub fn new(plan: &'a Plan, store: &'a dyn ClaimStore, cancel: &Cancel) -> Result<Self, FarmError> {
        let target = Target::open(plan.header())?;
        if let Some(Err(missing)) = target.as_ref().map(Target::check_marker) {
            // The marker is removed when all units are done.
            let tally = store.tally()?;
            if tally.done < tally.units {
                return Err(missing);
            }
        }
        Ok(Self {
            plan,
            store,
            target,
            cancel: cancel.clone(),
            waiting: Mutex::default(),
            under_way: Mutex::default(),
            retires: AtomicBool::new(false),
            end: Mutex::new(None),
            has_file: AtomicBool::new(false),
            refused_units: AtomicU32::new(0),
            presence: Presence::new(store, beat_interval(plan.header().lease)),
        })
    }

    /// Sets the limit of this worker's user, within which the farm's limits apply.
    #[must_use]
    pub fn with_limit(mut self, limit: Option<RateLimit>) -> Self {
        self.presence = self.presence.with_limit(limit);
        self
    }

    /// Returns the directory that receives the files; `None` if the worker uploads.
    pub fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// Returns the URL to which the worker uploads, if it does.
    pub fn server(&self) -> Option<&Url> {
        self.plan.header().target.server()
    }

    /// Returns the host of this worker.
    pub fn host(&self) -> &str {
        self.store.host()
    }

    /// Returns the next file; claims a unit if the last one has no further file, but no more than `max_units` at once: others are
    /// for other workers. `None` if there is nothing to begin now: [`pause`](Self::pause) says why.
    pub fn next_file(&self, max_units: usize) -> Option<FileTask> {
        let mut waiting = self.waiting.lock();
        while waiting.is_empty() {
            let is_full = || self.under_way.lock().len() >= max_units;
            if self.cancel.is_cancelled() || self.retires.load(Ordering::Relaxed) || is_full() {
                return None;
            }
            let next = self.store.claim().and_then(|next| match &next {
                NextUnit::Claimed(claim) => self.begin(claim, &mut waiting).map(|()| next),
                _ => Ok(next),
            });
            if !matches!(next, Ok(NextUnit::Claimed(_))) {
                *self.end.lock() = Some(next);
                return None;
            }
        }
        waiting.pop_front()
    }

    /// Claims a range, beside one that is about to end.
    ///
    /// # Errors
    /// The state of the plan cannot be read or written.
    pub fn next_range(&self) -> Result<Option<FileTask>, FarmError> {
        if self.cancel.is_cancelled() || self.is_retired() {
            return Ok(None);
        }
        let Some(claim) = self.store.claim_next_range()? else { return Ok(None) };
        let mut waiting = VecDeque::new();
        self.begin(&claim, &mut waiting)?;
        Ok(waiting.pop_front())
    }

    /// Gives back a unit that was claimed and not begun.
    pub(crate) fn give_back(&self, unit: UnitId) -> Result<(), FarmError> {
        let run = self.under_way.lock().remove(&unit);
        run.map_or(Ok(()), |run| self.store.finish(&run.claim, &UnitEnd::Released))
    }

    /// Returns whether a unit is under way.
    pub(crate) fn has_unit(&self) -> bool {
        !self.under_way.lock().is_empty()
    }

    /// Returns the interval of heartbeats.
    pub(crate) fn beat_interval(&self) -> Duration {
        beat_interval(self.plan.header().lease)
    }

    /// Returns whether one range is under way, of which little is left.
    pub fn range_ends_soon(&self) -> bool {
        let under_way = self.under_way.lock();
        under_way.len() == 1 && under_way.values().all(|run| run.ends_soon.load(Ordering::Relaxed))
    }

    /// Queues the files of a claimed unit. A unit that cannot be read or staged fails here, and may succeed elsewhere.
    fn begin(&self, claim: &Claim, waiting: &mut VecDeque<FileTask>) -> Result<(), FarmError> {
        let staged = self.plan.unit(claim.unit).and_then(|unit| {
            let stage = |target: &Target| target.stage(claim, self.store.worker());
            let stage = self.target.as_ref().map_or(Ok(PathBuf::new()), stage)?;
            let is_range = matches!(unit.part, Some(FilePart::Range { .. }));
            let has_range = is_range && self.store.has_range(claim.unit)?;
            Ok((unit, stage, has_range))
        });
        let (unit, stage, has_range) = match staged {
            Ok(staged) => staged,
            Err(error) => {
                self.retires.store(true, Ordering::Relaxed);
                self.store.finish(claim, &UnitEnd::Failed(error.to_string()))?;
                return Err(error);
            }
        };
        let run = Arc::new(UnitRun::new(claim.clone(), stage, self.cancel.child(), unit.files.len()));
        self.under_way.lock().insert(run.claim.unit, Arc::clone(&run));
        let part = unit.part;
        waiting.extend(unit.files.into_iter().enumerate().map(|(number, file)| FileTask {
            staged: match part.zip(self.target.as_ref()) {
                None => run.stage.join(number.to_string()),
                Some((FilePart::Range { joined_by, .. }, target)) => target.shared_file(joined_by),
                Some((FilePart::Join { .. }, target)) => target.shared_file(run.claim.unit),
            },
            file,
            part,
            has_range,
            unit: Arc::clone(&run),
        }));
        Ok(())
    }

    /// Checks a file whose ranges are all there, so that [`finish_file`](Self::finish_file) can give it its name in the target.
    pub fn join(&self, target: &Target, task: &FileTask) -> FileEnd {
        let (file, cancel) = (&task.file, task.cancel());
        if target.is_joined(&task.staged, file, cancel) {
            return FileEnd::Present(Bytes::ZERO);
        }
        let count = |bytes: Bytes| self.count_verified(bytes);
        match target.complete(&task.staged, file, cancel, &count) {
            Ok(()) => FileEnd::Received(Bytes::ZERO),
            // Another worker was faster.
            Err(_) if target.is_joined(&task.staged, file, cancel) => FileEnd::Present(Bytes::ZERO),
            Err(why) => FileEnd::Failed { why, is_refused: false },
        }
    }

    /// Ends a file: gives it its final name; the last file of a unit ends the unit. Returns whether the unit is done by that.
    ///
    /// # Errors
    /// The state of the plan cannot be written; the reason of a failed file is logged with its unit.
    pub fn finish_file(&self, task: FileTask, end: FileEnd) -> Result<bool, FarmError> {
        let FileTask { file, part, staged, unit, .. } = task;
        self.presence.catch_up(|unit| self.lose(unit));
        let mut state = unit.state.lock();
        state.files_left -= 1;
        // Another worker completes it.
        let end = if state.is_lost { FileEnd::lost() } else { end };
        if !matches!(end, FileEnd::Failed { .. } | FileEnd::Unjoinable(_)) {
            self.has_file.store(true, Ordering::Relaxed);
        }
        match end {
            FileEnd::Received(bytes) => match (part, &self.target) {
                // A range is synced; its file has no name yet. What was uploaded has its name.
                (Some(FilePart::Range { .. }), _) | (_, None) => state.bytes += bytes,
                (_, Some(target)) => match target.publish(&staged, &file, &mut state.changed) {
                    Ok(()) => state.bytes += bytes,
                    Err(_) if part.is_some() && target.is_joined(&staged, &file, &self.cancel) => {}
                    Err(error) => {
                        self.retire();
                        state.fail(&error.to_string());
                    }
                },
            },
            FileEnd::Present(bytes) => {
                // It may be one that a killed worker has named and not synced.
                let above = file.path.parent().unwrap_or(Path::new(""));
                state.changed.extend(above.ancestors().map(Path::to_owned));
                // The bytes of ranges are counted already.
                if part.is_none() {
                    state.bytes += bytes;
                }
            }
            FileEnd::Failed { why, is_refused } => {
                state.is_refused |= is_refused;
                state.fail(&why);
            }
            FileEnd::Unjoinable(why) => {
                state.is_unjoinable = true;
                state.fail(&why);
            }
        }
        // The end of one that was handed over is that of its files, and of what it waited for.
        if state.files_left > 0 || unit.is_handed_over() {
            return Ok(false);
        }
        self.under_way.lock().remove(&unit.claim.unit);
        if let Some(target) = self.target.as_ref().filter(|_| state.failure.is_none()) {
            let settled = target.settle(&unit.stage, &state.changed);
            settled.unwrap_or_else(|error| {
                self.retire();
                state.fail(&error.to_string());
            });
        }
        if state.is_refused
            && !self.has_file.load(Ordering::Relaxed)
            && self.refused_units.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_REFUSED_UNITS
        {
            self.retire();
        }
        let end = match state.failure.take() {
            None => UnitEnd::Done(UnitDone { bytes: state.bytes, report: self.report(&unit, &state) }),
            // A unit that looked lost for a moment was cancelled, and has not failed.
            Some(_) if self.cancel.is_cancelled() || state.is_lost => UnitEnd::Released,
            Some(why) if state.is_unjoinable => UnitEnd::Unjoinable(why),
            Some(why) => UnitEnd::Failed(why),
        };
        self.store.finish(&unit.claim, &end)?;
        Ok(matches!(end, UnitEnd::Done(_)))
    }

    /// Claims no further unit: this host fails at what others may be able to do.
    pub fn retire(&self) {
        self.retires.store(true, Ordering::Relaxed);
    }

    /// Returns whether the worker claims no further unit.
    pub fn is_retired(&self) -> bool {
        self.retires.load(Ordering::Relaxed)
    }

    /// Counts bytes that were moved.
    pub fn count(&self, bytes: Bytes, admission: &Admission) {
        self.presence.count(bytes, admission);
    }

    /// Counts bytes that were read to verify a file.
    pub(crate) fn count_verified(&self, bytes: Bytes) {
        self.presence.count_verified(bytes);
    }

    /// Waits until a file may be moved from or to `host`, over at most so many connections.
    pub fn admit(&self, host: &str, wants: usize, cancel: &Cancel) -> Admission {
        self.presence.admit(host, wants, cancel, |unit| self.lose(unit))
    }

    /// Returns why [`next_file`](Self::next_file) has returned nothing: the tally if nothing is left for this worker,
    /// `None` if it is worth to ask again.
    ///
    /// # Errors
    /// The state of the plan cannot be read or written.
    pub fn pause(&self) -> Result<Option<Tally>, FarmError> {
        match self.end.lock().take().transpose()? {
            Some(NextUnit::Finished(tally)) => Ok(Some(tally)),
            _ => Ok(None),
        }
    }

    /// Returns the number of units of each state.
    ///
    /// # Errors
    /// The state of the plan cannot be read.
    pub fn tally(&self) -> Result<Tally, FarmError> {
        self.store.tally()
    }

    /// Gives back the units of files that were claimed and not begun; for a worker that stops, after its last file has ended.
    ///
    /// # Errors
    /// The state of the plan cannot be written.
    pub fn release(&self) -> Result<(), FarmError> {
        self.waiting.lock().clear();
        let runs: Vec<Arc<UnitRun>> = self.under_way.lock().drain().map(|(_, run)| run).collect();
        runs.iter().try_for_each(|run| self.store.finish(&run.claim, &UnitEnd::Released))
    }

    /// Ends this worker: its claims expire at once.
    ///
    /// # Errors
    /// The state of the plan cannot be written.
    pub fn leave(&self) -> Result<(), FarmError> {
        self.store.leave()
    }

    /// Reports this worker as alive until `stop` is raised; cancels units that other workers have taken over, and hands over those
    /// that wait for a file system that has not answered for `stall`.
    pub fn keep_alive(&self, stop: &Cancel, stall: Duration) {
        self.presence.keep(stop, |unit| self.lose(unit), || self.hand_over_hung(stall));
    }

    /// Lets other workers have the units with a copy of which a step has not ended for `stall`, and those that have waited to begin for
    /// as long: the threads wait in the kernel, and cannot be interrupted. This worker claims none of them while such a step lasts.
    pub(crate) fn hand_over_hung(&self, stall: Duration) {
        let runs: Vec<Arc<UnitRun>> = self.under_way.lock().values().cloned().collect();
        let Some(source) = runs.iter().find_map(|run| run.hung_source(stall)) else {
            return runs.iter().filter(|run| run.is_handed_over()).for_each(|run| self.end_handed_over(run));
        };
        for run in runs.iter().filter(|run| run.hung_source(stall).is_some() || run.waits(stall)) {
            if run.hand_over() {
                let why = format!(
                    "cannot copy {}: a file system has not answered for {} s; see whether this host has those of the source and of the \
                     target mounted, and their servers run",
                    run.hung_source(stall).as_ref().unwrap_or(&source).display(),
                    stall.as_secs()
                );
                tracing::warn!("unit {} is for other workers: {why}", run.claim.unit);
                self.end_claim(run, &UnitEnd::Hung(why));
            }
        }
    }

    /// Lets this worker claim a unit again that it has handed over, once its last file has ended.
    fn end_handed_over(&self, run: &UnitRun) {
        if run.state.lock().files_left == 0 {
            self.under_way.lock().remove(&run.claim.unit);
            self.end_claim(run, &UnitEnd::Released);
        }
    }

    fn end_claim(&self, run: &UnitRun, end: &UnitEnd) {
        self.store.finish(&run.claim, end).unwrap_or_else(|error| tracing::warn!("{error}"));
    }

    /// Returns how a unit was done, if something was received.
    fn report(&self, unit: &UnitRun, state: &RunState) -> Option<UnitReport> {
        let (limited_by, _) = state.held.iter().max_by_key(|(_, time)| **time)?;
        let (host, time) = (self.store.host().to_owned(), unit.started.elapsed());
        Some(UnitReport { host, time, limited_by: *limited_by, farm: self.presence.farm_rate() })
    }

    /// Ends the files of a unit that another worker has taken over.
    fn lose(&self, unit: UnitId) {
        let mut under_way = self.under_way.lock();
        if under_way.get(&unit).is_none_or(|run| run.is_handed_over()) {
            return;
        }
        let run = under_way.remove(&unit);
        drop(under_way);
        if let Some(run) = run {
            tracing::warn!("unit {unit} was taken over by another worker while this one was silent");
            run.state.lock().is_lost = true;
            run.cancel.cancel();
        }
    }
}
