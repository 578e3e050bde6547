//! The result of one execution.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use longhaul_core::units::Rate;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::host::FinishedCommand;
use crate::link::{DirectionStats, PathStats};
use crate::model::BackgroundCounts;
use crate::spec::{PathSpec, QueueLimit};

use super::host_facts::Conditions;
use super::plan::Execution;
use super::progress::{self, ReportedProgress};

/// The result of one execution of a run's command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The run's name.
    pub name: String,
    /// The swept parameters that apply to the run.
    pub parameters: BTreeMap<String, String>,
    /// Which repetition, and when.
    #[serde(flatten)]
    pub repeat: Repetition,
    /// How the command ended.
    #[serde(flatten)]
    pub end: CommandEnd,
    /// What the command took.
    #[serde(flatten)]
    pub times: CommandTimes,
    /// Further numbers, by name.
    pub values: BTreeMap<String, f64>,
    /// What became of the path.
    #[serde(flatten)]
    pub path: PathEnd,
    /// Other irregularities: of the server command, of the record.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Number of attempts, which end with a faithful path or at the limit; 1 in earlier versions.
    #[serde(default = "once")]
    pub attempts: u32,
    /// Conditions of the execution; absent in earlier versions.
    #[serde(default)]
    pub(super) on: Option<Conditions>,
}

/// The repetition of a run that a result is of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The path's seed.
    pub seed: u64,
    /// Start in seconds since 1970, UTC.
    pub started: f64,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// The command's exit status; `None` if a signal ended it, or if it was not started.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// Whether the command was killed at its timeout.
    pub timed_out: bool,
    /// A failure outside the command, which invalidates the execution: setup, path, server command,
    /// cleanup.
    pub error: Option<String>,
    /// Location and last line of a failed command's output.
    #[serde(default)]
    pub said: Option<String>,
}

/// The times of a command, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandTimes {
    /// Duration of the command in seconds.
    pub wall_s: f64,
    /// User CPU time of the command and its children, in seconds.
    pub user_s: f64,
    /// Kernel CPU time of the command and its children, in seconds.
    pub sys_s: f64,
}

/// What became of the path of an execution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathEnd {
    /// Statistics of the path, which nothing reads; `None` if it was not built.
    link: Option<Value>,
    /// Deviations of the path from its specification. Earlier versions had no other warnings.
    #[serde(alias = "warnings")]
    pub infidelities: Vec<String>,
}

fn once() -> u32 {
    1
}

/// Values that every execution has.
pub(super) const TIMES: [&str; 4] = ["wall_s", "user_s", "sys_s", "cpu_s"];

impl RunResult {
    /// Creates an empty result.
    pub(super) fn new(execution: &Execution<'_>, started: f64) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            name: execution.run.name.clone(),
            parameters: execution.parameters.iter().map(owned).collect(),
            repeat: Repetition { repetition: execution.repetition, seed: execution.path.seed, started },
            attempts: 1,
            ..Self::default()
        }
    }

    pub(super) fn set_ended(&mut self, ended: &FinishedCommand) {
        let FinishedCommand { finished, wall, timed_out } = ended;
        self.end.exit_code = finished.status.code();
        self.end.signal = finished.status.signal();
        self.end.timed_out = *timed_out;
        self.times = CommandTimes {
            wall_s: wall.as_secs_f64(),
            user_s: finished.user.as_secs_f64(),
            sys_s: finished.system.as_secs_f64(),
        };
    }

    pub(super) fn set_link(&mut self, stats: PathStats, spec: &PathSpec) {
        self.path.infidelities.extend(stats.infidelities(spec));
        let both = [stats.client_to_server, stats.server_to_client];
        let sum = |count: fn(&DirectionStats) -> u64| both.iter().map(count).sum::<u64>() as f64;
        self.add_values([
            ("dropped_queue", sum(|direction| direction.dropped_queue)),
            ("dropped_loss", sum(|direction| direction.dropped_loss)),
            ("path_rtt_s", spec.round_trip().as_secs_f64()),
            ("path_loss", 1.0 - (1.0 - spec.impairments.loss) * (1.0 - spec.impairments.gemodel.mean_loss())),
        ]);
        for (name, direction) in
            [("client_to_server", stats.client_to_server), ("server_to_client", stats.server_to_client)]
        {
            if let BackgroundCounts { offered: offered @ 1.., lost, .. } = direction.background {
                self.add_values([
                    (format!("background_{name}_packets"), offered as f64),
                    (format!("background_{name}_loss"), lost as f64 / offered as f64),
                ]);
            }
        }
        if stats.cross_flows.flows > 0 {
            self.add_values([("cross_goodput_bps", stats.cross_flows.goodput().as_bits_per_sec() as f64)]);
        }
        if let Some(rate) = spec.rate {
            self.add_values([("path_rate_bps", rate.as_bits_per_sec() as f64)]);
        }
        match spec.queue_limit() {
            Some(QueueLimit::Bytes(bytes)) => self.add_values([("path_queue_bytes", bytes.get() as f64)]),
            Some(QueueLimit::Packets(packets)) => self.add_values([("path_queue_packets", packets as f64)]),
            None => {}
        }
        self.path.link = Some(json!({
            "client_to_server": stats.client_to_server.to_json(),
            "server_to_client": stats.server_to_client.to_json(),
        }));
    }

    /// Adds the transfer's rate after its ramp-up, and the time of its digest.
    pub(super) fn add_progress(&mut self, progress: &ReportedProgress, spec: &PathSpec) {
        let ReportedProgress { samples, digest_seconds } = progress;
        self.add_values(digest_seconds.map(|seconds| ("digest_s", seconds)));
        let Some(size) = samples.iter().map(|sample| sample.received).max() else { return };
        let rates = progress::rates(samples, size);
        let [least, ramped] = [rates.map(|rates| rates.min), rates.map(|rates| rates.median)]
            .map(|rate| Some(Rate::bytes_per_sec(rate? as u64).as_bits_per_sec() as f64));
        let share = spec.payload_capacity().and_then(|left| progress::share_of(&left, samples, size));
        let reached =
            spec.payload_rate().zip(ramped).map(|(all, ramped)| ramped / all.as_bits_per_sec() as f64);
        let known = [
            ("least_second_bps", least),
            ("left_share", share),
            ("ramped_bps", ramped),
            ("ramped_share", reached),
        ];
        self.add_values(known.into_iter().filter_map(|(name, value)| Some((name, value?))));
    }

    /// Adds finite values whose names are still unused.
    pub(super) fn add_values<N: Into<String>>(&mut self, values: impl IntoIterator<Item = (N, f64)>) {
        for (name, value) in values {
            let name = name.into();
            if value.is_finite() && self.value(&name).is_none() {
                self.values.insert(name, value);
            }
        }
    }

    /// Adds the rate that the window allows on this path: min(RWIN/RTT, path rate).
    pub(super) fn add_ceiling(&mut self) {
        if let Some(window) = self.value("window_bps") {
            let ceiling = self.value("path_rate_bps").map_or(window, |rate| rate.min(window));
            self.add_values([("ceiling_bps", ceiling)]);
        }
    }

    /// Returns a value by its current or earlier name; `None` if unknown.
    pub fn value(&self, name: &str) -> Option<f64> {
        // A command that never ran has no times.
        let ran = self.end.exit_code.is_some() || self.end.signal.is_some();
        match name {
            "wall_s" => ran.then_some(self.times.wall_s),
            "user_s" => ran.then_some(self.times.user_s),
            "sys_s" => ran.then_some(self.times.sys_s),
            "cpu_s" => ran.then_some(self.times.user_s + self.times.sys_s),
            _ => self.values.get(name).or_else(|| self.values.get(&renamed(name))).copied(),
        }
    }

    /// Returns whether the command exited with status 0, without a timeout or another failure.
    pub fn succeeded(&self) -> bool {
        self.end.exit_code == Some(0) && !self.end.timed_out && self.end.error.is_none()
    }

    /// Returns whether the execution succeeded on a path that deviated from its specification.
    pub fn is_marked(&self) -> bool {
        self.succeeded() && !self.path.infidelities.is_empty()
    }

    /// Returns whether the command itself failed.
    pub(super) fn failed_itself(&self) -> bool {
        self.end.timed_out || self.end.signal.is_some() || self.end.exit_code.is_some_and(|code| code != 0)
    }

    /// Describes the failure of the command, and of what surrounds it; `None` if the execution
    /// succeeded.
    pub fn failure(&self) -> Option<String> {
        let command = match (self.end.exit_code, self.end.signal) {
            _ if self.end.timed_out => Some("FAILED: its time was over".to_owned()),
            (Some(0), _) | (None, None) => None,
            (Some(code), _) => Some(format!("FAILED with exit status {code}")),
            (None, Some(signal)) => Some(format!("FAILED by signal {signal}")),
        };
        let around = self.end.error.as_ref().map(|error| format!("FAILED: {error}"));
        let parts: Vec<_> = [command, self.end.said.clone(), around].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Returns whether this is the result of `execution`.
    pub fn is_of(&self, execution: &Execution<'_>) -> bool {
        self.repeat.repetition == execution.repetition && self.is_like(execution)
    }

    /// Returns whether this is the result of a repetition of `execution`.
    pub fn is_like(&self, execution: &Execution<'_>) -> bool {
        self.name == execution.run.name
            && self.parameters.len() == execution.parameters.len()
            && execution
                .parameters
                .iter()
                .all(|(name, value)| self.parameters.get(*name).is_some_and(|own| own == value))
    }
}

/// Maps a value's name of earlier versions to its current name.
fn renamed(name: &str) -> String {
    let name = name.replace("far_to_near", "server_to_client").replace("near_to_far", "client_to_server");
    name.strip_prefix("far_").map(|rest| format!("server_{rest}")).unwrap_or(name)
}
