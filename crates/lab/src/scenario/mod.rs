//! Scenarios: experiments in TOML files; each execution runs on a fresh lab.
//!
//! [`Scenario::load`] reads the file, [`Scenario::plan`] lists its executions, [`Results::resume`]
//! reads earlier results, and [`run_scenario`] runs the remaining executions.

mod csv;
mod environment;
mod execution;
mod file_names;
mod goals;
mod host_facts;
mod last_output_line;
mod needs;
mod outcome;
mod parse;
mod plan;
mod plot;
pub mod progress;
mod quantity;
mod raw_toml;
mod results;
mod results_directory;
mod runner;
mod shell;
mod stdout;
mod summary;
mod sweep;
mod table;

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::spec::PathSpec;

pub use host_facts::MachineFacts;
pub use outcome::{CommandEnd, CommandTimes, PathEnd, Repetition, RunResult};
pub use plan::{Execution, Selection};
pub use plot::{Plot, PublishedResults, RUN};
pub use quantity::{UnitOf, measures, unit_of};
pub use results::{FidelityPolicy, Results};
pub use results_directory::ResultsDirectory;
pub use runner::{ExecutionPhase, ExecutionStart, Watcher, run_scenario};
pub use summary::{Group, Spread};
pub use sweep::{Parameter, SetParameter};
pub use table::markdown_table;

/// An experiment: a path, the server command, and the client commands to compare.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The name; by default derived from the file's name.
    pub name: String,
    /// The path before a sweep changes it.
    pub path: PathSpec,
    /// Seeds of the path, one repetition each; if empty, the path's own seed applies.
    pub seeds: Vec<u64>,
    /// Shell command on the machine, run once before all executions.
    pub prepare: Option<String>,
    /// Shell command on the machine, run once after all executions, even after a failure.
    pub cleanup: Option<String>,
    /// Programs that the commands need, with their packages.
    pub needs: BTreeMap<String, String>,
    /// Swept parameters, in the order of the file.
    pub sweep: Vec<Parameter>,
    /// The client commands with their servers.
    pub runs: Vec<Run>,
    /// What is made of the results.
    pub evaluation: Evaluation,
    /// Where the scenario comes from.
    pub(crate) origin: ScenarioOrigin,
}

/// What is made of a scenario's results.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evaluation {
    /// The plots.
    pub plots: Vec<Plot>,
    /// Values in the summary.
    pub columns: Vec<String>,
    /// The bounds that results are held to.
    goals: Vec<goals::Goal>,
}

/// The text that a scenario was read from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ScenarioOrigin {
    /// Path of the scenario file.
    pub(crate) file: PathBuf,
    /// Text of the scenario file.
    pub(crate) source: String,
    /// Replacements for values of the file.
    pub(crate) set: Vec<SetParameter>,
}

/// The server of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioServer {
    /// Shell command on the server host, started before each execution and stopped after it.
    pub command: String,
    /// The TCP port of the server; an execution starts once the server listens.
    pub port: Option<NonZeroU16>,
}

/// A command to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Name in the results; letters, digits, '-', '_' and '.'.
    pub name: String,
    /// Shell command on the client host.
    pub command: String,
    /// The server of this run.
    pub server: Option<ScenarioServer>,
    /// Executions with each seed.
    pub repeat: NonZeroU32,
    /// Maximum duration; beyond it the command is killed and counts as failed.
    pub timeout: Option<Duration>,
    /// Path values that differ from the scenario's, as ("rate", "20Mbit").
    pub path: Vec<(String, String)>,
    /// Indices of the swept parameters that apply to this run.
    pub sweep: Vec<usize>,
    /// Shell command on the machine before each execution.
    pub setup: Option<String>,
    /// Shell command on the machine after each execution.
    pub cleanup: Option<String>,
    /// Further programs that this run needs, with their packages.
    pub needs: BTreeMap<String, String>,
}

impl Scenario {
    /// Returns whether both scenarios describe the same measurements, so that results of one can be
    /// continued by the other.
    ///
    /// Repetitions, plots, columns, goals and needs may differ.
    pub fn measures_as(&self, other: &Self) -> bool {
        self.measured() == other.measured()
    }

    fn measured(&self) -> Self {
        let run = |run: &Run| Run { repeat: NonZeroU32::MIN, needs: BTreeMap::new(), ..run.clone() };
        Self {
            name: String::new(),
            runs: self.runs.iter().map(run).collect(),
            needs: BTreeMap::new(),
            evaluation: Evaluation::default(),
            origin: ScenarioOrigin::default(),
            ..self.clone()
        }
    }
}
