//! The units that a worker executes. It loses a unit when another worker takes it over, or when it
//! hands the unit over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::FarmError;
use crate::store::{ClaimStore, UnitEnd};
use crate::unit::UnitId;
use crate::unit_run::UnitRun;

/// The units that a worker executes. One that it has handed over is removed when its files have
/// ended.
pub(crate) struct UnitsUnderWay<'a> {
    store: &'a dyn ClaimStore,
    runs: Mutex<HashMap<UnitId, Arc<UnitRun>>>,
}

impl<'a> UnitsUnderWay<'a> {
    pub(crate) fn new(store: &'a dyn ClaimStore) -> Self {
        Self { store, runs: Mutex::default() }
    }

    pub(crate) fn insert(&self, run: &Arc<UnitRun>) {
        self.runs.lock().insert(run.claim.unit, Arc::clone(run));
    }

    pub(crate) fn remove(&self, unit: UnitId) -> Option<Arc<UnitRun>> {
        self.runs.lock().remove(&unit)
    }

    /// Removes a unit, unless it was ended and claimed again meanwhile.
    pub(crate) fn remove_run(&self, run: &Arc<UnitRun>) {
        let mut runs = self.runs.lock();
        if runs.get(&run.claim.unit).is_some_and(|present| Arc::ptr_eq(present, run)) {
            runs.remove(&run.claim.unit);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.runs.lock().len()
    }

    /// Returns whether one range is under way, of which little is left.
    pub(crate) fn range_ends_soon(&self) -> bool {
        let runs = self.runs.lock();
        runs.len() == 1 && runs.values().all(|run| run.ends_soon.load(Ordering::Relaxed))
    }

    /// Gives back all units.
    ///
    /// # Errors
    /// The state of the plan cannot be written.
    pub(crate) fn release(&self) -> Result<(), FarmError> {
        let runs: Vec<_> = self.runs.lock().drain().map(|(_, run)| run).collect();
        runs.iter().try_for_each(|run| self.store.finish(&run.claim, &UnitEnd::Released))
    }

    /// Ends the files of a unit that another worker has taken over.
    pub(crate) fn lose(&self, unit: UnitId) {
        let run = self.runs.lock().get(&unit).cloned();
        if let Some(run) = run.filter(|run| !run.is_handed_over()) {
            tracing::warn!("unit {unit} was taken over by another worker while this one was silent");
            run.lose();
            self.remove_run(&run);
        }
    }

    /// Hands over to other workers each unit with a step that has waited for a file system for
    /// `stall`. Threads in the kernel cannot be interrupted, so units whose files have waited as
    /// long for a thread or a connection are handed over too. This worker claims none of them while
    /// such a step lasts.
    pub(crate) fn hand_over_hung(&self, stall: Duration) {
        let runs: Vec<Arc<UnitRun>> = self.runs.lock().values().cloned().collect();
        let Some(hung) = runs.iter().find_map(|run| run.steps.hung(stall)) else {
            return runs.iter().filter(|run| run.has_ended_after_hand_over()).for_each(|run| {
                // This worker may claim it again.
                self.remove_run(run);
                self.end_claim(run, &UnitEnd::Released);
            });
        };
        for run in runs {
            let awaited = run.steps.hung(stall).or_else(|| run.waits(stall).then(|| hung.clone()));
            let Some(awaited) = awaited.filter(|_| run.hand_over()) else { continue };
            let why = format!(
                "{}: a file system has not answered for {} s; see whether this host has those of the sources and of the target \
                 mounted, and their servers run",
                awaited.display(),
                stall.as_secs()
            );
            tracing::warn!("unit {} is for other workers: {why}", run.claim.unit);
            self.end_claim(&run, &UnitEnd::Hung(why));
        }
    }

    fn end_claim(&self, run: &UnitRun, end: &UnitEnd) {
        self.store.finish(&run.claim, end).unwrap_or_else(|error| tracing::warn!("{error}"));
    }
}
