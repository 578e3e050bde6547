//! All results of a scenario, stored in `results.json`; a later run continues from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use longhaul_core::failure::FailureKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::LabError;
use crate::spec::PathSpec;

use super::host_facts::{Conditions, MachineFacts};
use super::outcome::RunResult;
use super::plan::Execution;
use super::plot::Plot;
use super::results_directory::{RESULTS, ResultsDirectory, remove_file, replace_file};
use super::{Evaluation, Scenario, SetParameter, csv, goals, table};

/// Identifies a results file.
const RESULTS_MAGIC: &str = "longhaul lab";
/// The version that is written, and the newest that is read.
const RESULTS_VERSION: u32 = 1;

/// The results of a scenario so far.
#[derive(Debug)]
pub struct Results {
    pub(super) scenario: Scenario,
    host: MachineFacts,
    /// Plots of earlier drawings that the scenario no longer has.
    obsolete: Vec<Plot>,
    /// Whether `results.json` lists other plots than the scenario.
    draws_other: bool,
    /// Treatment of executions on a deviating path.
    pub fidelity: FidelityPolicy,
    /// The latest result of each execution, in the order of their ends.
    pub runs: Vec<RunResult>,
}

/// Treatment of an execution that succeeded on a path that deviated from its specification. Medians
/// always exclude it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FidelityPolicy {
    /// Maximum of repetitions.
    pub retries: u32,
    /// Whether the execution counts as failed after the last repetition.
    pub is_strict: bool,
}

impl Default for FidelityPolicy {
    fn default() -> Self {
        Self { retries: 2, is_strict: false }
    }
}

impl FidelityPolicy {
    /// Returns whether an execution is complete; a stop may have prevented its repetitions.
    fn accepts(self, result: &RunResult) -> bool {
        let is_repeated = self.is_strict || result.attempts <= self.retries;
        result.succeeded() && !(result.is_marked() && is_repeated)
    }
}

/// `results.json`: times in seconds, sizes in bytes, rates in bits per second.
#[derive(Serialize)]
struct ResultsFile<'a> {
    results: &'a str,
    version: u32,
    scenario: &'a str,
    host: &'a MachineFacts,
    path: &'a PathSpec,
    sweep: BTreeMap<&'a str, &'a [String]>,
    runs: &'a [RunResult],
    set: &'a [SetParameter],
    source: &'a str,
}

/// The fields of `results.json` that are read back.
#[derive(Deserialize)]
struct ParsedResults {
    host: MachineFacts,
    runs: Vec<RunResult>,
    set: Vec<SetParameter>,
    source: String,
}

impl Results {
    /// Creates empty results.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            scenario: scenario.clone(),
            host: MachineFacts::now(),
            obsolete: Vec::new(),
            draws_other: false,
            fidelity: FidelityPolicy::default(),
            runs: Vec::new(),
        }
    }

    /// Reads the results of an earlier run of the scenario in `directory`; empty if there are none.
    ///
    /// # Errors
    /// Fails if the results are damaged, of a newer version, or of another scenario.
    pub fn resume(scenario: &Scenario, directory: &Path) -> Result<Self, LabError> {
        let path = directory.join(RESULTS);
        let json = match fs::read(&path) {
            Ok(json) => json,
            // If the directory does not exist, creating it later reports why it cannot be used.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self::new(scenario));
            }
            Err(cause) => return Err(LabError::read(&path)(cause)),
        };
        let shown = path.display();
        let remedy = "--fresh throws them away, --out chooses another place";
        let damaged = |why: String| {
            LabError::failed(FailureKind::Data, format!("cannot go on from {shown}: {why}. {remedy}"))
        };
        let read = read(&json).map_err(damaged)?;
        let before = Scenario::parse(&read.source, &scenario.origin.file, &read.set);
        let Some(before) = before.ok().filter(|before| before.measures_as(scenario)) else {
            let why = "holds results of another scenario, or of this one before it was changed";
            return Err(LabError::failed(FailureKind::Usage, format!("{shown} {why}. {remedy}")));
        };
        let drawn = |plot: &Plot| scenario.evaluation.plots.iter().any(|own| own.file_stem == plot.file_stem);
        let draws_other = before.evaluation.plots != scenario.evaluation.plots;
        let obsolete = before.evaluation.plots.into_iter().filter(|plot| !drawn(plot)).collect();
        Ok(Self {
            scenario: scenario.clone(),
            host: read.host,
            obsolete,
            draws_other,
            runs: read.runs,
            ..Self::new(scenario)
        })
    }

    /// Removes the results in a directory with all files written for them: tables, drawings, and
    /// output of executions.
    ///
    /// # Errors
    /// Fails if a file cannot be removed.
    pub fn discard(&self, output: &ResultsDirectory) -> Result<(), LabError> {
        const PREVIEW: usize = 200;
        let path = output.results();
        let json = fs::read(&path).unwrap_or_default();
        // A file of this name may belong to another program; then nothing beside it is removed.
        if String::from_utf8_lossy(&json[..json.len().min(PREVIEW)]).contains(RESULTS_MAGIC) {
            output.clear_all()?;
            // The scenario of damaged results is unknown.
            let before = read(&json).ok();
            let before = before
                .and_then(|read| Scenario::parse(&read.source, &self.scenario.origin.file, &read.set).ok())
                .map_or_else(Vec::new, |before| before.evaluation.plots);
            before
                .iter()
                .chain(&self.scenario.evaluation.plots)
                .try_for_each(|plot| output.clear_plot(plot))?;
        }
        remove_file(&path)
    }

    /// Returns the executions of a plan that are missing or failed, and those on a deviating path
    /// with retries left or a strict policy.
    pub fn remaining<'p, 's>(&self, plan: &'p [Execution<'s>]) -> Vec<&'p Execution<'s>> {
        let done = |execution: &Execution<'_>| {
            self.runs.iter().any(|result| result.is_of(execution) && self.fidelity.accepts(result))
        };
        plan.iter().filter(|execution| !done(execution)).collect()
    }

    /// Stores a result, replacing an earlier one of this execution.
    pub(super) fn put(&mut self, execution: &Execution<'_>, result: RunResult) {
        self.runs.retain(|earlier| !earlier.is_of(execution));
        self.runs.push(result);
    }

    /// Writes `results.json`.
    pub(super) fn write(&self, output: &ResultsDirectory) -> Result<(), LabError> {
        let parameters = self.scenario.sweep.iter();
        let document = ResultsFile {
            results: RESULTS_MAGIC,
            version: RESULTS_VERSION,
            scenario: &self.scenario.name,
            host: &self.host,
            path: &self.scenario.path,
            sweep: parameters.map(|p| (p.name.as_str(), p.values.as_slice())).collect(),
            runs: &self.runs,
            set: &self.scenario.origin.set,
            source: &self.scenario.origin.source,
        };
        let path = output.results();
        let json =
            serde_json::to_vec_pretty(&document).map_err(|error| LabError::write(&path)(error.into()))?;
        replace_file(&path, &json)
    }

    /// Writes `results.csv`, a row per execution, and `summary.md`, a row per configuration and per
    /// goal; returns the summary's tables and path.
    ///
    /// Removes drawings of plots that the scenario no longer has.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write_tables(&self, output: &ResultsDirectory) -> Result<(String, PathBuf), LabError> {
        // Written first, so that a later run knows which plots exist.
        if self.draws_other {
            self.write(output)?;
        }
        self.obsolete.iter().try_for_each(|plot| output.clear_plot(plot))?;
        for (page, is_drawn) in [
            (output.plots_page(), !self.scenario.evaluation.plots.is_empty()),
            (output.records_page(), !self.records(output).is_empty()),
        ] {
            if !is_drawn {
                remove_file(&page)?;
            }
        }
        replace_file(&output.csv(), csv::text(self).as_bytes())?;
        let table = table::markdown(self) + &goals::markdown(self);
        replace_file(&output.summary(), table::page(self, &table).as_bytes())?;
        Ok((table, output.summary()))
    }

    /// Returns sentences about the machine at the start of the results, and about later changes.
    pub fn conditions(&self) -> Vec<String> {
        std::iter::once(self.host.sentence()).chain(self.differences()).collect()
    }

    /// Describes the conditions of the executions, if they differ.
    pub fn differences(&self) -> Option<String> {
        let mut kinds: Vec<(Option<&Conditions>, usize)> = Vec::new();
        for run in &self.runs {
            match kinds.iter_mut().find(|(on, _)| *on == run.on.as_ref()) {
                Some((_, count)) => *count += 1,
                None => kinds.push((run.on.as_ref(), 1)),
            }
        }
        let describe = |(on, count): &(Option<&Conditions>, usize)| match on {
            Some(on) => format!("{count} on {on}"),
            None => format!("{count} by a version that did not record it"),
        };
        let list: Vec<String> = kinds.iter().map(describe).collect();
        (list.len() > 1).then(|| format!("not all executions ran on the same: {}", list.join("; ")))
    }

    /// Returns the record of each configuration's first successful repetition that has one,
    /// labelled with the configuration.
    pub fn records(&self, output: &ResultsDirectory) -> Vec<(String, PathBuf)> {
        let mut records = Vec::new();
        for first in self.scenario.once() {
            let mut good: Vec<&RunResult> =
                self.runs.iter().filter(|result| result.succeeded() && result.is_like(&first)).collect();
            good.sort_by_key(|result| result.repeat.repetition);
            let record = |result: &&RunResult| output.record_of(&first.again(result.repeat.repetition));
            if let Some(record) = good.iter().find_map(record) {
                let values = first.parameters.iter().map(|(_, value)| format!(" {value}"));
                records.push((first.run.name.clone() + &values.collect::<String>(), record));
            }
        }
        records
    }

    /// Returns the names of values in a plot, the summary or a goal that no execution has.
    pub fn unknown_values(&self) -> Vec<&str> {
        let Evaluation { plots, columns, goals } = &self.scenario.evaluation;
        let asked = plots.iter().flat_map(|plot| &plot.y).chain(columns);
        let succeeded: Vec<_> = self.runs.iter().filter(|result| result.succeeded()).collect();
        let is_unknown = |name: &str| succeeded.iter().all(|result| result.value(name).is_none());
        let mut unknown: Vec<&str> = Vec::new();
        for name in asked.chain(goals.iter().map(|goal| &goal.value)).filter(|_| !succeeded.is_empty()) {
            if !unknown.contains(&name.as_str()) && is_unknown(name) {
                unknown.push(name);
            }
        }
        unknown
    }
}

fn read(json: &[u8]) -> Result<ParsedResults, String> {
    let value: Value = serde_json::from_slice(json).map_err(|error| format!("it is damaged: {error}"))?;
    if value["results"] != RESULTS_MAGIC {
        return Err("these are no results of `longhaul lab run`, or of a version before results were kept \
                    for later runs"
            .to_owned());
    }
    match value["version"].as_u64() {
        Some(version) if version > u64::from(RESULTS_VERSION) => {
            return Err(format!(
                "its version is {version}, and this program reads up to version {RESULTS_VERSION}"
            ));
        }
        Some(_) => {}
        None => return Err("it is damaged: it has no version".to_owned()),
    }
    serde_json::from_value(value).map_err(|error| format!("it is damaged: {error}"))
}

#[cfg(test)]
pub(super) mod tests;
