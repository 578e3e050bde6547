//! The claims of units: a trait, so that a directory or a database may keep them.

use longhaul_core::units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

use crate::budget::{FarmLimits, HostUse};
use crate::error::FarmError;
use crate::explanation::UnitReport;
use crate::unit::UnitId;

/// The claims of one plan, as one worker sees them. Supports calls from several threads.
pub trait ClaimStore: Send + Sync {
    /// Returns the name of this worker, unique among all.
    fn worker(&self) -> &str;

    /// Returns the host of this worker.
    fn host(&self) -> &str;

    /// Claims a unit that is not done, that no live worker executes, and that this worker has not
    /// failed at.
    ///
    /// # Errors
    /// The state cannot be read or written.
    fn claim(&self) -> Result<NextUnit, FarmError>;

    /// Claims a free range although this worker executes one, which is about to end; `None` if
    /// there is none.
    ///
    /// # Errors
    /// The state cannot be read or written.
    fn claim_next_range(&self) -> Result<Option<Claim>, FarmError>;

    /// Returns whether a range of the file of which `unit` is a range is done.
    ///
    /// # Errors
    /// The state cannot be read.
    fn has_range(&self, unit: UnitId) -> Result<bool, FarmError>;

    /// Ends a claim. That a unit is done is recorded even if the claim was lost.
    ///
    /// # Errors
    /// The state cannot be written.
    fn finish(&self, claim: &Claim, end: &UnitEnd) -> Result<(), FarmError>;

    /// Renews the leases of this worker's claims, observes other workers, and returns the units
    /// whose claims are lost. To be called at least five times in a lease.
    ///
    /// # Errors
    /// The state cannot be read or written.
    fn beat(&self, progress: WorkerProgress) -> Result<Vec<UnitId>, FarmError>;

    /// Returns the limits of all workers, and what the other live ones have announced, as it is
    /// now.
    ///
    /// # Errors
    /// The state cannot be read.
    fn farm(&self) -> Result<FarmState, FarmError>;

    /// Sets what the next [`beat`](Self::beat) announces of this worker.
    fn announce(&self, uses: Vec<HostUse>);

    /// Returns the number of units of each state.
    ///
    /// # Errors
    /// The state cannot be read.
    fn tally(&self) -> Result<Tally, FarmError>;

    /// Ends this worker: its claims expire at once, before the end of its lease.
    ///
    /// # Errors
    /// The state cannot be written.
    fn leave(&self) -> Result<(), FarmError>;
}

/// What a worker can do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextUnit {
    /// Execute this unit.
    Claimed(Claim),
    /// Ask again: other workers execute what is left, and may fail or be lost, or it waits for a
    /// file system.
    Wait,
    /// Nothing is left for this worker.
    Finished(Tally),
}

/// A unit that is claimed by this worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The unit.
    pub unit: UnitId,
    /// The number of the claim: each that replaces an expired one is higher.
    pub epoch: u64,
    /// A worker that was stopped within the unit, and left partial files for the next one.
    pub left_by: Option<String>,
}

/// How the execution of a unit ended.
#[derive(Debug, Clone, PartialEq)]
pub enum UnitEnd {
    /// All files are synced under their final names.
    Done(UnitDone),
    /// A file failed; the reason.
    Failed(String),
    /// A file system does not answer; the reason. It is no failure, and its files have not ended:
    /// this worker does not claim the unit until it has ended the claim once more.
    Hung(String),
    /// The ranges of its file cannot be joined; the reason. The unit that joins them has failed
    /// instead of this one, once for all ranges that this worker may try.
    Unjoinable(String),
    /// This worker was stopped; another one continues.
    Released,
}

/// A unit that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitDone {
    /// The size of its files.
    pub bytes: Bytes,
    /// What held it back; `None` if nothing was received.
    pub report: Option<UnitReport>,
}

impl From<Bytes> for UnitDone {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, report: None }
    }
}

/// What a worker sees of all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarmState {
    /// The limits of all workers.
    pub limits: FarmLimits,
    /// The other live workers.
    pub others: Vec<OtherWorker>,
}

/// A live worker, as it has announced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherWorker {
    /// Its name.
    pub worker: String,
    /// The number of its last heartbeat.
    pub beat: u64,
    /// Its host.
    pub host: String,
    /// The rate at which it moves bytes.
    pub rate: Rate,
    /// What it uses of each host; `None` if it is of another version and does not say.
    pub uses: Option<Vec<HostUse>>,
}

/// The number of units of each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// All units.
    pub units: u32,
    /// Units that are done.
    pub done: u32,
    /// Units that have failed, and are not done since.
    pub failed: u32,
}

/// What a worker does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerProgress {
    /// The bytes that it has received.
    pub bytes: Bytes,
    /// The rate since its last report.
    pub rate: Rate,
    /// The rate at which it has read files to verify them since then.
    #[serde(default)]
    pub verifying: Rate,
}
