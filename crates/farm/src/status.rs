//! The state of a plan, for its user.

use std::collections::BTreeMap;

use longhaul_core::units::{Bytes, Rate};
use serde::Serialize;

use crate::attempts::is_given_up;
use crate::budget::{FarmLimits, HostUse};
use crate::error::FarmError;
use crate::explanation::{Explanation, HostState};
use crate::plan::Plan;
use crate::shared_dir::heartbeat::Heartbeat;
use crate::shared_dir::unit_log::UnitLog;
use crate::shared_dir::{CLAIMS, Claims, LOG, WORKERS};
use crate::store::Tally;
use crate::unit::UnitId;

/// The state of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanStatus {
    /// The number of units of each state.
    #[serde(flatten)]
    pub tally: Tally,
    /// The number of files.
    pub files: u64,
    /// The size of all files, as far as known.
    pub bytes: Bytes,
    /// The size of the files of units that are done.
    pub bytes_done: Bytes,
    /// The number of entries of the sources that could not be planned.
    pub left_out: u64,
    /// The workers with units under way.
    pub workers: Vec<WorkerStatus>,
    /// The hosts of live workers.
    pub hosts: Vec<HostState>,
    /// The limits of all workers.
    pub limits: FarmLimits,
    /// What holds the workers back.
    pub explanation: Explanation,
    /// The units that have failed, or have waited for a file system that did not answer, and are
    /// not done since, by their number.
    pub failures: Vec<UnitFailure>,
}

/// A worker with units under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    /// The worker's name.
    pub worker: String,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its units.
    pub units: Vec<UnitId>,
    /// The rate at which it received when it last reported.
    pub rate: Rate,
    /// The rate at which it read files to verify them.
    pub verifying: Rate,
    /// Whether its process, on this host, has ended; its units wait for another worker.
    pub ended: bool,
}

/// A unit that has failed, or has waited for a file system that did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnitFailure {
    /// The unit.
    pub unit: UnitId,
    /// How often it has failed since the last retry; 0 if a file system did not answer.
    pub attempts: u32,
    /// Whether no worker tries it again.
    pub given_up: bool,
    /// The last reason.
    pub why: String,
    /// The host of that reason.
    pub host: String,
}

impl PlanStatus {
    /// Reads the state of a plan.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn read(plan: &Plan) -> Result<Self, FarmError> {
        let mut log = UnitLog::new(plan.state().join(LOG), plan.header().counts.units);
        log.refresh()?;
        let mut failures: Vec<UnitFailure> = log
            .failed_or_hung()
            .map(|(unit, failures)| UnitFailure {
                unit,
                attempts: failures.left(),
                given_up: is_given_up(failures.left()),
                why: failures.why.clone(),
                host: failures.host.clone(),
            })
            .collect();
        failures.sort_by_key(|failure| failure.unit);
        let limits = FarmLimits::of(plan)?;
        let heartbeats = Heartbeat::all(&plan.state().join(WORKERS))?;
        let workers = workers(plan, &log, &heartbeats)?;
        let hosts = hosts(&workers, &log);
        let is_live = |heartbeat: &&Heartbeat| {
            workers.iter().any(|worker| worker.worker == heartbeat.worker() && !worker.ended)
        };
        let uses = heartbeats.iter().filter(is_live).flat_map(|heartbeat| heartbeat.uses.iter().flatten());
        let is_capped = is_capped(&limits, uses);
        let explanation = Explanation::of(&hosts, &log.evidence().rates(), is_capped);
        Ok(Self {
            tally: log.tally(),
            files: plan.header().counts.files,
            bytes: plan.header().counts.bytes,
            bytes_done: log.done_bytes(),
            left_out: plan.header().counts.left_out,
            workers,
            hosts,
            limits,
            explanation,
            failures,
        })
    }
}

/// Returns the workers with claims of units that are not done.
fn workers(plan: &Plan, log: &UnitLog, heartbeats: &[Heartbeat]) -> Result<Vec<WorkerStatus>, FarmError> {
    let claims = Claims::new(plan.state().join(CLAIMS), "", plan.header().counts.units);
    let mut held: Vec<(String, UnitId)> = Vec::new();
    for (unit, epoch) in claims.all()? {
        if !log.is_done(unit) {
            held.extend(claims.holder(unit, epoch)?.map(|worker| (worker, unit)));
        }
    }
    held.sort();
    let mut workers = Vec::new();
    for heartbeat in heartbeats {
        let of_this = |(worker, _): &&(String, UnitId)| worker == heartbeat.worker();
        let units: Vec<UnitId> = held.iter().filter(of_this).map(|(_, unit)| *unit).collect();
        if !units.is_empty() {
            workers.push(WorkerStatus {
                worker: heartbeat.worker().to_owned(),
                host: heartbeat.host().to_owned(),
                pid: heartbeat.process().id,
                units,
                rate: heartbeat.progress.rate,
                verifying: heartbeat.progress.verifying,
                ended: heartbeat.ended || heartbeat.process().has_ended(),
            });
        }
    }
    workers.sort_by(|one, other| one.worker.cmp(&other.worker));
    Ok(workers)
}

/// Returns the hosts of the workers that have not ended.
fn hosts(workers: &[WorkerStatus], log: &UnitLog) -> Vec<HostState> {
    let mut rates: BTreeMap<&str, Rate> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| !worker.ended) {
        let rate = rates.entry(&worker.host).or_default();
        *rate = *rate + worker.rate;
    }
    let state = |(host, rate): (&str, Rate)| HostState {
        host: host.to_owned(),
        rate,
        limited_by: log.evidence().held(host),
    };
    rates.into_iter().map(state).collect()
}

/// Returns whether a worker needs more connections to a host than all may open.
fn is_capped<'a>(limits: &FarmLimits, uses: impl Iterator<Item = &'a HostUse>) -> bool {
    let mut hosts: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for used in uses {
        let (sum, is_short) = hosts.entry(&used.host).or_default();
        *sum = sum.saturating_add(used.connections.share);
        *is_short |= used.connections.need.is_none();
    }
    hosts.values().any(|(sum, is_short)| *is_short && *sum >= u64::from(limits.connections))
}
