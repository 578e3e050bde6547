//! What a scenario's runs gave: `results.json`, and a summary.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use serde::Serialize;

use super::Scenario;
use crate::error::LabError;
use crate::host::Finished;
use crate::link::{DirectionStats, PathStats};
use crate::spec::{PathSpec, QueueLimit};

/// All results of a scenario: times in seconds, sizes in bytes, rates in bits per second.
#[derive(Debug, Serialize)]
pub struct Results {
    scenario: String,
    path: PathRecord,
    far: Option<String>,
    /// In the order of execution.
    pub runs: Vec<RunResult>,
}

/// One execution of a run's command.
#[derive(Debug, Clone, Serialize)]
pub struct RunResult {
    /// The run's name.
    pub name: String,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// The command's exit status; none where a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// Time from its start to its end, in seconds.
    pub wall_s: f64,
    /// CPU time in user mode of it and of what it waited for, in seconds.
    pub user_s: f64,
    /// CPU time in the kernel of the same, in seconds.
    pub sys_s: f64,
    /// What the path did meanwhile.
    link: LinkRecord,
    /// Why the path was not what was asked for; empty where it was.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
struct LinkRecord {
    near_to_far: DirectionRecord,
    far_to_near: DirectionRecord,
}

#[derive(Debug, Clone, Serialize)]
struct DirectionRecord {
    packets: u64,
    bytes: u64,
    dropped_queue: u64,
    dropped_loss: u64,
    dropped_overflow: u64,
    read_late_p99_s: f64,
    late_p99_s: f64,
    late_max_s: f64,
}

#[derive(Debug, Serialize)]
struct PathRecord {
    rate_bps: Option<u64>,
    rtt_s: f64,
    queue_bytes: Option<u64>,
    queue_packets: Option<u64>,
    loss: f64,
    aqm: String,
    hosts: String,
    congestion: String,
    seed: u64,
    mtu_bytes: u64,
}

impl From<DirectionStats> for DirectionRecord {
    fn from(stats: DirectionStats) -> Self {
        Self {
            packets: stats.packets,
            bytes: stats.bytes.get(),
            dropped_queue: stats.dropped_queue,
            dropped_loss: stats.dropped_loss,
            dropped_overflow: stats.dropped_overflow,
            read_late_p99_s: stats.read_late_p99.as_secs_f64(),
            late_p99_s: stats.late_p99.as_secs_f64(),
            late_max_s: stats.late_max.as_secs_f64(),
        }
    }
}

impl From<&PathSpec> for PathRecord {
    fn from(spec: &PathSpec) -> Self {
        let queue = spec.queue_limit();
        Self {
            rate_bps: spec.rate.map(|rate| rate.as_bits_per_sec()),
            rtt_s: spec.rtt.get().as_secs_f64(),
            queue_bytes: match queue {
                Some(QueueLimit::Bytes(bytes)) => Some(bytes.get()),
                _ => None,
            },
            queue_packets: match queue {
                Some(QueueLimit::Packets(packets)) => Some(packets),
                _ => None,
            },
            loss: spec.loss,
            aqm: spec.aqm.to_string(),
            hosts: spec.hosts.to_string(),
            congestion: spec.congestion.clone(),
            seed: spec.seed,
            mtu_bytes: spec.mtu.get(),
        }
    }
}

/// How a run's command ended.
pub(super) struct Ended {
    pub(super) finished: Finished,
    pub(super) wall: Duration,
    pub(super) timed_out: bool,
}

impl RunResult {
    pub(super) fn new(
        name: &str,
        repetition: u32,
        ended: &Ended,
        stats: PathStats,
        warnings: Vec<String>,
    ) -> Self {
        let Ended { finished, wall, timed_out } = ended;
        Self {
            name: name.to_owned(),
            repetition,
            exit_code: finished.status.code(),
            signal: finished.status.signal(),
            timed_out: *timed_out,
            wall_s: wall.as_secs_f64(),
            user_s: finished.user.as_secs_f64(),
            sys_s: finished.system.as_secs_f64(),
            link: LinkRecord { near_to_far: stats.near_to_far.into(), far_to_near: stats.far_to_near.into() },
            warnings,
        }
    }

    /// Says whether the command ended by itself, with status 0.
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0) && !self.timed_out
    }
}

/// Median, least and largest of a quantity over repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle value; the mean of the two middle ones where their number is even.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Sums up `values`; `None` where there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }
}

/// One run's repetitions, summed up. Only those that succeeded count for time.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The run's name.
    pub name: String,
    /// Repetitions that succeeded.
    pub succeeded: usize,
    /// Repetitions that did not.
    pub failed: usize,
    /// Wall time in seconds.
    pub wall: Option<Spread>,
    /// CPU time, user and system, in seconds.
    pub cpu: Option<Spread>,
}

impl Results {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            scenario: scenario.name.clone(),
            path: PathRecord::from(&scenario.path),
            far: scenario.far.as_ref().map(|far| far.command.clone()),
            runs: Vec::new(),
        }
    }

    /// Writes the results as JSON; a reader sees the old file or the new one, never half of one.
    pub(super) fn write(&self, path: &Path) -> Result<(), LabError> {
        let failed = |cause: io::Error| LabError::Write { path: path.to_owned(), cause };
        let json = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let unfinished = path.with_extension("json.part");
        fs::write(&unfinished, json).and_then(|()| fs::rename(&unfinished, path)).map_err(failed)
    }

    /// Sums up each run, in the order of their first execution.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.name.as_str()) {
                names.push(&run.name);
            }
        }
        let summary = |name: &str| {
            let (good, bad): (Vec<_>, Vec<_>) =
                self.runs.iter().filter(|run| run.name == name).partition(|run| run.succeeded());
            Summary {
                name: name.to_owned(),
                succeeded: good.len(),
                failed: bad.len(),
                wall: Spread::of(good.iter().map(|run| run.wall_s)),
                cpu: Spread::of(good.iter().map(|run| run.user_s + run.sys_s)),
            }
        };
        names.into_iter().map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_right_for_odd_even_and_none() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
