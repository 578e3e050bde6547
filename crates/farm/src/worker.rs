//! One worker: turns units into files to transfer, and ends a unit with its last file.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::pending_steps::PendingStep;
use longhaul_engine::rate_limit::RateLimit;
use parking_lot::Mutex;
use url::Url;

use crate::error::FarmError;
use crate::explanation::{FarmRate, UnitReport};
use crate::host_fitness::HostFitness;
use crate::host_gate::Admission;
use crate::plan::Plan;
use crate::presence::Presence;
use crate::shared_dir::beat_interval;
use crate::store::{Claim, ClaimStore, NextUnit, Tally, UnitDone, UnitEnd};
use crate::target_directory::TargetDirectory;
use crate::unit::{FilePart, Unit, UnitId};
pub use crate::unit_run::{FileEnd, FileTask};
use crate::unit_run::{Hold, RunState, UnitRun};
use crate::units_under_way::UnitsUnderWay;

/// A worker of a plan. Its methods may be called from several threads.
pub struct Worker<'a> {
    plan: &'a Plan,
    store: &'a dyn ClaimStore,
    /// `None` if the worker uploads.
    target: Option<TargetDirectory>,
    cancel: Cancel,
    /// The files of the claimed unit that are not begun.
    waiting: Mutex<VecDeque<FileTask>>,
    under_way: UnitsUnderWay<'a>,
    end: Mutex<Option<Result<NextUnit, FarmError>>>,
    fitness: HostFitness,
    presence: Presence<'a>,
}

impl<'a> Worker<'a> {
    /// Creates a worker.
    ///
    /// # Errors
    /// The target cannot be opened, or is not mounted.
    pub fn new(plan: &'a Plan, store: &'a dyn ClaimStore, cancel: &Cancel) -> Result<Self, FarmError> {
        let target = TargetDirectory::open(plan.header())?;
        if let Some(Err(missing)) = target.as_ref().map(TargetDirectory::check_marker) {
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
            under_way: UnitsUnderWay::new(store),
            end: Mutex::new(None),
            fitness: HostFitness::default(),
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
    pub fn target(&self) -> Option<&TargetDirectory> {
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

    /// Returns the next file; claims a unit if the last one has no further file, but no more than
    /// `max_units` at once: others are for other workers. `None` if there is nothing to begin now:
    /// [`pause`](Self::pause) says why.
    pub fn next_file(&self, max_units: usize) -> Option<FileTask> {
        let mut waiting = self.waiting.lock();
        while waiting.is_empty() {
            let is_full = || self.under_way.count() >= max_units;
            if self.cancel.is_cancelled() || self.is_retired() || is_full() {
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
        let run = self.under_way.remove(unit);
        run.map_or(Ok(()), |run| self.store.finish(&run.claim, &UnitEnd::Released))
    }

    /// Returns whether a unit is under way.
    pub(crate) fn has_unit(&self) -> bool {
        self.under_way.count() > 0
    }

    /// Returns the interval of heartbeats.
    pub(crate) fn beat_interval(&self) -> Duration {
        beat_interval(self.plan.header().lease)
    }

    /// Returns whether one range is under way, of which little is left.
    pub fn range_ends_soon(&self) -> bool {
        self.under_way.range_ends_soon()
    }

    /// Queues the files of a claimed unit. A unit that cannot be read or staged fails here, and may
    /// succeed elsewhere.
    fn begin(&self, claim: &Claim, waiting: &mut VecDeque<FileTask>) -> Result<(), FarmError> {
        let fail = |error: FarmError| {
            self.retire();
            self.store.finish(claim, &UnitEnd::Failed(error.to_string()))?;
            Err(error)
        };
        let (Unit { files, part }, has_range) = match self.read(claim.unit) {
            Ok(read) => read,
            Err(error) => return fail(error),
        };
        let staging = |target: &TargetDirectory| target.staging_of(claim.unit, self.store.worker());
        let stage = self.target.as_ref().map_or_else(PathBuf::new, staging);
        let run = Arc::new(UnitRun::new(claim.clone(), stage, self.cancel.child(), files.len()));
        self.under_way.insert(&run);
        if let Some(target) = &self.target
            && let Err(error) = run.steps.during(target.path(), || target.stage(claim, &run.stage))
        {
            // The last heartbeat may have been before the unit was under way.
            self.presence.beat(None, |unit| self.under_way.lose(unit));
            self.under_way.remove_run(&run);
            // Other workers may have done the unit, and with the last one removed the staging
            // directories, while this one was stopped or its file system hung.
            let is_done = |tally: Tally| tally.done == tally.units;
            let is_over = run.is_lost() || self.store.tally().is_ok_and(is_done);
            return if is_over { self.store.finish(claim, &UnitEnd::Released) } else { fail(error) };
        }
        waiting.extend(files.into_iter().enumerate().map(|(number, file)| FileTask {
            staged: match part.zip(self.target.as_ref()) {
                None => run.stage.join(number.to_string()),
                Some((FilePart::Range { joined_by, .. }, target)) => target.shared_file(joined_by),
                Some((FilePart::Join { .. }, target)) => target.shared_file(claim.unit),
            },
            file,
            part,
            has_range,
            is_begun: AtomicBool::new(false),
            unit: Arc::clone(&run),
        }));
        Ok(())
    }

    /// Reads a unit; returns it, and whether it is a range of which a worker has written a part.
    fn read(&self, unit: UnitId) -> Result<(Unit, bool), FarmError> {
        let read = self.plan.unit(unit)?;
        let is_range = matches!(read.part, Some(FilePart::Range { .. }));
        let has_range = is_range && self.store.has_range(unit)?;
        Ok((read, has_range))
    }

    /// Checks a file whose ranges are all there, so that [`finish_file`](Self::finish_file) can
    /// give it its name in the target.
    pub fn join(&self, target: &TargetDirectory, task: &FileTask) -> FileEnd {
        let (file, cancel) = (&task.file, task.cancel());
        let step = task.steps().begin(&target.path_of(file));
        let count = |bytes| self.count_verified(bytes, &step);
        if target.is_joined(&task.staged, file, cancel, &count) {
            return FileEnd::Present(Bytes::ZERO);
        }
        match target.complete(&task.staged, file, cancel, &count) {
            Ok(()) => FileEnd::Received(Bytes::ZERO),
            // Another worker was faster.
            Err(_) if target.is_joined(&task.staged, file, cancel, &count) => FileEnd::Present(Bytes::ZERO),
            Err(why) => FileEnd::Failed { why, is_refused: false },
        }
    }

    /// Ends a file: gives it its final name; the last file of a unit ends the unit. Returns whether
    /// the unit is done by that.
    ///
    /// # Errors
    /// The state of the plan cannot be written; the reason of a failed file is logged with its
    /// unit.
    pub fn finish_file(&self, task: FileTask, end: FileEnd) -> Result<bool, FarmError> {
        self.presence.catch_up(|unit| self.under_way.lose(unit));
        let unit = Arc::clone(&task.unit);
        // Another worker completes it.
        let end = if unit.is_kept() { end } else { FileEnd::lost() };
        if !matches!(end, FileEnd::Failed { .. } | FileEnd::Unjoinable(_)) {
            self.fitness.note_file();
        }
        let end = match &self.target {
            Some(target) => self.publish(target, &task, end),
            None => end,
        };
        if task.end(end) { self.end_unit(&unit) } else { Ok(false) }
    }

    /// Gives a file that was received its final name.
    fn publish(&self, target: &TargetDirectory, task: &FileTask, end: FileEnd) -> FileEnd {
        let FileTask { file, part, staged, unit, .. } = task;
        match end {
            // It is synced; its file has no name yet.
            FileEnd::Received(_) if matches!(part, Some(FilePart::Range { .. })) => end,
            FileEnd::Received(_) => {
                let step = unit.steps.begin(&target.path_of(file));
                let is_joined = || target.is_joined(staged, file, &self.cancel, &|_| step.renew());
                match target.publish(staged, file, &mut unit.changed.lock()) {
                    Err(error) if part.is_none() || !is_joined() => {
                        if !error.is_of_name() && unit.is_kept() {
                            self.retire();
                        }
                        FileEnd::Failed { why: error.to_string(), is_refused: false }
                    }
                    _ => end,
                }
            }
            FileEnd::Present(_) => {
                // It may be one that a killed worker has named and not synced.
                let above = file.path.parent().unwrap_or(Path::new(""));
                unit.changed.lock().extend(above.ancestors().map(Path::to_owned));
                end
            }
            FileEnd::Failed { .. } | FileEnd::Unjoinable(_) => end,
        }
    }

    /// Ends a unit whose last file has ended; returns whether it is done.
    fn end_unit(&self, unit: &Arc<UnitRun>) -> Result<bool, FarmError> {
        let has_failed = unit.state.lock().failure.is_some();
        let settled = match &self.target {
            Some(target) if !has_failed => {
                unit.steps.during(target.path(), || target.settle(&unit.stage, &unit.changed.lock()))
            }
            _ => Ok(()),
        };
        // Both may wait for a file system, or for the lock of another thread that does.
        let (farm, is_kept) = (self.presence.farm_rate(), unit.is_kept());
        let mut state = unit.state.lock();
        state.is_ended = true;
        if let Err(error) = settled {
            if is_kept {
                self.retire();
            }
            state.fail(&error.to_string());
        }
        // The end of one that was handed over is also that of what it waited for.
        if state.hold == Hold::HandedOver && state.failure.is_some() {
            return Ok(false);
        }
        if state.is_refused {
            self.fitness.note_refused_unit();
        }
        let end = match state.failure.take() {
            None => UnitEnd::Done(UnitDone { bytes: state.bytes, report: self.report(unit, &state, farm) }),
            // A unit that looked lost for a moment was cancelled, and has not failed.
            Some(_) if self.cancel.is_cancelled() || state.hold == Hold::Lost => UnitEnd::Released,
            Some(why) if state.is_unjoinable => UnitEnd::Unjoinable(why),
            Some(why) => UnitEnd::Failed(why),
        };
        drop(state);
        self.under_way.remove_run(unit);
        self.store.finish(&unit.claim, &end)?;
        Ok(matches!(end, UnitEnd::Done(_)))
    }

    /// Claims no further unit: this host fails at what others may be able to do.
    pub fn retire(&self) {
        self.fitness.retire();
    }

    /// Returns whether the worker claims no further unit.
    pub fn is_retired(&self) -> bool {
        self.fitness.is_retired()
    }

    /// Counts bytes that were moved.
    pub fn count(&self, bytes: Bytes, admission: &Admission) {
        self.presence.count(bytes, admission);
    }

    /// Counts bytes that a step has read to verify a file, and renews the step.
    pub(crate) fn count_verified(&self, bytes: Bytes, step: &PendingStep<'_>) {
        step.renew();
        self.presence.count_verified(bytes);
    }

    /// Waits until a file may be moved from or to `host`, over at most so many connections.
    pub fn admit(&self, host: &str, wants: usize, cancel: &Cancel) -> Admission {
        self.presence.admit(host, wants, cancel, |unit| self.under_way.lose(unit))
    }

    /// Returns why [`next_file`](Self::next_file) has returned nothing: the tally if nothing is
    /// left for this worker, `None` if it is worth to ask again.
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

    /// Gives back the units of files that were claimed and not begun; for a worker that stops,
    /// after its last file has ended.
    ///
    /// # Errors
    /// The state of the plan cannot be written.
    pub fn release(&self) -> Result<(), FarmError> {
        self.waiting.lock().clear();
        self.under_way.release()
    }

    /// Ends this worker: its claims expire at once.
    ///
    /// # Errors
    /// The state of the plan cannot be written.
    pub fn leave(&self) -> Result<(), FarmError> {
        self.store.leave()
    }

    /// Reports this worker as alive until `stop` is raised; cancels units that other workers have
    /// taken over, and hands over those that wait for a file system that has not answered for
    /// `stall`.
    pub fn keep_alive(&self, stop: &Cancel, stall: Duration) {
        self.presence.keep(stop, |unit| self.under_way.lose(unit), || self.hand_over_hung(stall));
    }

    /// Hands over units that wait for a file system that has not answered for `stall`.
    pub(crate) fn hand_over_hung(&self, stall: Duration) {
        self.under_way.hand_over_hung(stall);
    }

    /// Returns how a unit was done, if something was received.
    fn report(&self, unit: &UnitRun, state: &RunState, farm: Option<FarmRate>) -> Option<UnitReport> {
        let (limited_by, _) = state.held.iter().max_by_key(|(_, time)| **time)?;
        let (host, time) = (self.store.host().to_owned(), unit.started.elapsed());
        Some(UnitReport { host, time, limited_by: *limited_by, farm })
    }
}
