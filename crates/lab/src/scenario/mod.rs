//! Scenarios: an experiment in a TOML file, run on a fresh lab each time.

mod parse;
mod results;
mod runner;

use std::num::NonZeroU32;
use std::time::Duration;

use crate::spec::PathSpec;

pub use results::{Results, RunResult, Spread, Summary};
pub use runner::run_scenario;

/// An experiment: a path, what runs on its far end, and what is compared on its near end.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name; that of the file where the file gives none.
    pub name: String,
    /// The path.
    pub path: PathSpec,
    /// What runs on the far host, started before each run and ended after it.
    pub far: Option<Far>,
    /// What runs on the near host.
    pub runs: Vec<Run>,
}

/// What serves an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Far {
    /// Shell command on the far host.
    pub command: String,
    /// The TCP port that it listens on; a run starts when it does.
    pub port: Option<u16>,
}

/// A command to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its name in the results; letters, digits, '-', '_' and '.'.
    pub name: String,
    /// Shell command on the near host.
    pub command: String,
    /// How often it runs.
    pub repeat: NonZeroU32,
    /// How long it may take; then it is ended, and counts as failed.
    pub timeout: Option<Duration>,
}

impl Scenario {
    /// Returns the order of execution: all runs once, then all again, so that what drifts meets all alike.
    ///
    /// Each comes with its repetition, counted from 1.
    pub fn schedule(&self) -> impl Iterator<Item = (u32, &Run)> {
        let rounds = self.runs.iter().map(|run| run.repeat.get()).max().unwrap_or(0);
        (1..=rounds).flat_map(move |round| {
            self.runs.iter().filter(move |run| round <= run.repeat.get()).map(move |run| (round, run))
        })
    }
}
