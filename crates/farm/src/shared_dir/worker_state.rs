//! Which units a worker may execute: those that are not done, neither given up nor failed in this
//! worker, and whose ranges are done if they join them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::heartbeat::Heartbeat;
use super::liveness::Liveness;
use super::unit_log::{UnitLog, UnitLogWriter};
use crate::attempts::is_given_up;
use crate::unit::UnitId;

/// What a worker has of a plan: its heartbeat, the logs, and the units that it has begun or failed
/// at.
#[derive(Debug)]
pub(super) struct WorkerState {
    pub(super) heartbeat: Heartbeat,
    pub(super) log: UnitLog,
    pub(super) writer: UnitLogWriter,
    pub(super) liveness: Liveness,
    /// The units under way in this worker, with their epochs. A lost one stays until its files have
    /// ended, so that it is not begun a second time meanwhile.
    pub(super) mine: BTreeMap<UnitId, u64>,
    /// The units that this worker has failed at, with how many of their failures were forgiven at
    /// that time.
    pub(super) failed_here: HashMap<UnitId, u32>,
    /// The unit at which the search begins.
    pub(super) cursor: u32,
    /// The units that join ranges, with the numbers of ranges, which are the units before them.
    pub(super) joins: BTreeMap<UnitId, u32>,
}

impl WorkerState {
    /// Returns whether this worker may execute a unit now.
    pub(super) fn is_open(&self, unit: UnitId) -> bool {
        let is_ready = || match self.joins.get(&unit) {
            Some(ranges) => self.log.next_undone(ranges_of(unit, *ranges)).is_none(),
            None => self.join_of(unit).is_none_or(|(join, _)| self.may_execute(join)),
        };
        self.may_execute(unit) && is_ready()
    }

    /// Returns whether a unit is not done, and neither given up nor failed in this worker.
    pub(super) fn may_execute(&self, unit: UnitId) -> bool {
        !self.log.is_done(unit) && !self.has_failed_here(unit) && !is_given_up(self.log.failures(unit))
    }

    /// Returns whether this worker has failed at a unit, and not been forgiven since.
    fn has_failed_here(&self, unit: UnitId) -> bool {
        self.failed_here.get(&unit).is_some_and(|before| *before >= self.log.forgiven(unit))
    }

    /// Notes that this worker has failed at a unit; returns whether that is new.
    pub(super) fn fail_here(&mut self, unit: UnitId) -> bool {
        let is_new = !self.has_failed_here(unit);
        self.failed_here.insert(unit, self.log.forgiven(unit));
        is_new
    }

    /// Returns whether a range is under way in this worker.
    pub(super) fn holds_range(&self) -> bool {
        self.mine.keys().any(|unit| self.join_of(*unit).is_some())
    }

    /// Returns the unit that joins a range, and its number of ranges.
    pub(super) fn join_of(&self, range: UnitId) -> Option<(UnitId, u32)> {
        let (join, ranges) = self.joins.range(range..).next()?;
        ranges_of(*join, *ranges).contains(&range.0).then_some((*join, *ranges))
    }
}

/// Returns the ranges that a unit joins.
pub(super) fn ranges_of(join: UnitId, ranges: u32) -> Range<u32> {
    join.0.saturating_sub(ranges)..join.0
}
