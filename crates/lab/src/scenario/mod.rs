//! Scenarios: an experiment in a TOML file, run on a fresh lab each time.
//!
//! [`Scenario::load`] reads the file, [`Scenario::plan`] lists its executions, [`Results::resume`] finds what
//! an earlier run has left, and [`run_scenario`] does the rest.

mod atomic_file;
mod csv;
mod environment;
mod execution;
mod file_names;
mod host_facts;
mod last_output_line;
mod outcome;
mod output;
mod parse;
mod plan;
mod plot;
pub mod progress;
mod quantity;
mod raw_toml;
mod results;
mod runner;
mod shell;
mod stdout;
mod summary;
mod sweep;
mod table;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::spec::PathSpec;

pub use host_facts::HostFacts;
pub use outcome::RunResult;
pub use output::Output;
pub use plan::{Execution, Selection};
pub use plot::{Plot, RUN};
pub use quantity::{UnitOf, measures, unit_of};
pub use results::{FidelityPolicy, Results};
pub use runner::{Begun, ExecutionPhase, Watcher, run_scenario};
pub use summary::{Group, Spread};
pub use sweep::{Parameter, SetParameter};

/// An experiment: a path, what runs on its server, and what is compared on its client.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name; that of the file, made to fit, where the file gives none.
    pub name: String,
    /// The path, before a sweep changes it.
    pub path: PathSpec,
    /// The path's seeds, a repetition each; empty where the path's own is for all.
    pub seeds: Vec<u64>,
    /// Shell command on the machine, run once before all executions.
    pub prepare: Option<String>,
    /// Shell command on the machine, run once after all executions, however they ended.
    pub cleanup: Option<String>,
    /// What changes from one configuration to the next, in the order written.
    pub sweep: Vec<Parameter>,
    /// What runs on the client, and serves it.
    pub runs: Vec<Run>,
    /// What is drawn of the results.
    pub plots: Vec<Plot>,
    /// The values in the summary.
    pub columns: Vec<String>,
    /// Where the file stands.
    pub(crate) file: PathBuf,
    /// The file's text.
    pub(crate) source: String,
    /// What replaced the file's own values.
    pub(crate) set: Vec<SetParameter>,
}

/// What serves an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioServer {
    /// Shell command on the server, started before each execution and ended after it.
    pub command: String,
    /// The TCP port that it listens on; an execution starts when it does.
    pub port: Option<u16>,
}

/// A command to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its name in the results; letters, digits, '-', '_' and '.'.
    pub name: String,
    /// Shell command on the client.
    pub command: String,
    /// What serves it.
    pub server: Option<ScenarioServer>,
    /// How often it runs with each seed.
    pub repeat: NonZeroU32,
    /// How long it may take; then it is ended, and counts as failed.
    pub timeout: Option<Duration>,
    /// Values of the path that differ from the scenario's, by their names: ("rate", "20Mbit").
    pub path: Vec<(String, String)>,
    /// Which parameters concern it, by their place in the scenario's sweep.
    pub sweep: Vec<usize>,
    /// Shell command on the machine before each execution.
    pub setup: Option<String>,
    /// Shell command on the machine after each execution.
    pub cleanup: Option<String>,
}

impl Scenario {
    /// Says whether both describe the same measurements: then one goes on where the other has stopped.
    ///
    /// How often they are repeated, and what is drawn and summed up, may differ.
    pub fn measures_as(&self, other: &Self) -> bool {
        self.measured() == other.measured()
    }

    fn measured(&self) -> Self {
        let run = |run: &Run| Run { repeat: NonZeroU32::MIN, ..run.clone() };
        Self {
            name: String::new(),
            runs: self.runs.iter().map(run).collect(),
            plots: Vec::new(),
            columns: Vec::new(),
            file: PathBuf::new(),
            source: String::new(),
            set: Vec::new(),
            ..self.clone()
        }
    }
}
