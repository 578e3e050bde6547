//! All results of a scenario: `results.json`, from which a later run continues.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::LabError;
use crate::spec::PathSpec;

use super::host_facts::{Conditions, HostFacts};
use super::outcome::RunResult;
use super::output::{Output, RESULTS};
use super::plan::Execution;
use super::plot::Plot;
use super::{Scenario, SetParameter, atomic_file, csv, table};

/// By this such a file is known.
const RESULTS_MAGIC: &str = "longhaul lab";
/// Of the file that is written, and the newest that is read.
const RESULTS_VERSION: u32 = 1;

/// A scenario's results so far.
#[derive(Debug)]
pub struct Results {
    pub(super) scenario: Scenario,
    host: HostFacts,
    /// Drawn earlier, and plots of the scenario no more.
    obsolete: Vec<Plot>,
    /// Whether `results.json` does not tell of what is drawn now.
    draws_other: bool,
    /// What becomes of executions whose path was not the one asked for.
    pub fidelity: FidelityPolicy,
    /// The latest of each execution, in the order in which they ended.
    pub runs: Vec<RunResult>,
}

/// What becomes of an execution that succeeded on a path that was not the one asked for. It is in no median either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FidelityPolicy {
    /// How often it is repeated at most.
    pub retries: u32,
    /// Whether it counts as failed after that.
    pub is_strict: bool,
}

impl Default for FidelityPolicy {
    fn default() -> Self {
        Self { retries: 2, is_strict: false }
    }
}

impl FidelityPolicy {
    fn accepts(self, result: &RunResult) -> bool {
        result.succeeded() && !(self.is_strict && result.is_marked())
    }
}

/// `results.json`: times in seconds, sizes in bytes, rates in bits per second.
#[derive(Serialize)]
struct Written<'a> {
    results: &'a str,
    version: u32,
    scenario: &'a str,
    host: &'a HostFacts,
    path: &'a PathSpec,
    sweep: BTreeMap<&'a str, &'a [String]>,
    runs: &'a [RunResult],
    set: &'a [SetParameter],
    source: &'a str,
}

/// What of it is read back.
#[derive(Deserialize)]
struct ParsedResults {
    host: HostFacts,
    runs: Vec<RunResult>,
    set: Vec<SetParameter>,
    source: String,
}

impl Results {
    /// Starts with none.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            scenario: scenario.clone(),
            host: HostFacts::now(),
            obsolete: Vec::new(),
            draws_other: false,
            fidelity: FidelityPolicy::default(),
            runs: Vec::new(),
        }
    }

    /// Takes up what an earlier run of the same scenario has left in `directory`; starts with none where
    /// there is nothing.
    ///
    /// # Errors
    /// Fails where the results there are damaged, of a newer version, or of another scenario.
    pub fn resume(scenario: &Scenario, directory: &Path) -> Result<Self, LabError> {
        let path = directory.join(RESULTS);
        let json = match fs::read(&path) {
            Ok(json) => json,
            // Where there is no such directory, making it will tell why.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self::new(scenario));
            }
            Err(cause) => return Err(LabError::Read { path, cause }),
        };
        let damaged = |why: String| LabError::Results { path: path.clone(), why };
        let read = read(&json).map_err(damaged)?;
        let before = Scenario::parse(&read.source, &scenario.file, &read.set);
        let Some(before) = before.ok().filter(|before| before.measures_as(scenario)) else {
            return Err(LabError::OtherScenario { path });
        };
        let drawn = |plot: &Plot| scenario.plots.iter().any(|own| own.file_stem == plot.file_stem);
        let draws_other = before.plots != scenario.plots;
        let obsolete = before.plots.into_iter().filter(|plot| !drawn(plot)).collect();
        Ok(Self {
            scenario: scenario.clone(),
            host: read.host,
            obsolete,
            draws_other,
            fidelity: FidelityPolicy::default(),
            runs: read.runs,
        })
    }

    /// Removes the results in a directory, and all that was written beside them: tables, drawings, and what the
    /// executions have left.
    ///
    /// # Errors
    /// Fails where the kernel refuses.
    pub fn discard(&self, output: &Output) -> Result<(), LabError> {
        const PREVIEW: usize = 200;
        let path = output.results();
        let json = fs::read(&path).unwrap_or_default();
        // Another program's results may lie beside a directory of the same name as ours.
        if String::from_utf8_lossy(&json[..json.len().min(PREVIEW)]).contains(RESULTS_MAGIC) {
            output.clear_all()?;
            // Damaged ones do not tell what they were of.
            let before = read(&json).ok();
            let before = before
                .and_then(|read| Scenario::parse(&read.source, &self.scenario.file, &read.set).ok())
                .map_or_else(Vec::new, |before| before.plots);
            before.iter().chain(&self.scenario.plots).try_for_each(|plot| output.clear_plot(plot))?;
        }
        atomic_file::remove(&path)
    }

    /// Returns those executions of a plan that are missing or have failed; where the policy is strict, also those whose
    /// path was not the one asked for.
    pub fn remaining<'p, 's>(&self, plan: &'p [Execution<'s>]) -> Vec<&'p Execution<'s>> {
        let done = |execution: &Execution<'_>| {
            self.runs.iter().any(|result| result.is_of(execution) && self.fidelity.accepts(result))
        };
        plan.iter().filter(|execution| !done(execution)).collect()
    }

    /// Puts a result in the place of an earlier one of the same execution.
    pub(super) fn put(&mut self, execution: &Execution<'_>, result: RunResult) {
        self.runs.retain(|earlier| !earlier.is_of(execution));
        self.runs.push(result);
    }

    /// Writes `results.json`.
    pub(super) fn write(&self, output: &Output) -> Result<(), LabError> {
        let parameters = self.scenario.sweep.iter();
        let document = Written {
            results: RESULTS_MAGIC,
            version: RESULTS_VERSION,
            scenario: &self.scenario.name,
            host: &self.host,
            path: &self.scenario.path,
            sweep: parameters.map(|p| (p.name.as_str(), p.values.as_slice())).collect(),
            runs: &self.runs,
            set: &self.scenario.set,
            source: &self.scenario.source,
        };
        let path = output.results();
        let json = serde_json::to_vec_pretty(&document)
            .map_err(|error| LabError::Write { path: path.clone(), cause: error.into() })?;
        atomic_file::replace(&path, &json)
    }

    /// Writes `results.csv`, a row an execution, and `summary.md`, a row a configuration; returns the latter's
    /// table, and where it is.
    ///
    /// Removes the drawings of plots that are none any more.
    ///
    /// # Errors
    /// Fails where they cannot be written.
    pub fn write_tables(&self, output: &Output) -> Result<(String, PathBuf), LabError> {
        // First, so that a later run that continues knows which plots exist.
        if self.draws_other {
            self.write(output)?;
        }
        self.obsolete.iter().try_for_each(|plot| output.clear_plot(plot))?;
        for (page, is_drawn) in [
            (output.plots_page(), !self.scenario.plots.is_empty()),
            (output.records_page(), !self.records(output).is_empty()),
        ] {
            if !is_drawn {
                atomic_file::remove(&page)?;
            }
        }
        atomic_file::replace(&output.csv(), csv::text(self).as_bytes())?;
        let table = table::markdown(self);
        atomic_file::replace(&output.summary(), table::page(self, &table).as_bytes())?;
        Ok((table, output.summary()))
    }

    /// Returns sentences about the machine, when the results were begun, and what changed since.
    pub fn conditions(&self) -> Vec<String> {
        std::iter::once(self.host.sentence()).chain(self.differences()).collect()
    }

    /// Says on what the executions ran, where that was not the same for all.
    pub fn differences(&self) -> Option<String> {
        let mut kinds: Vec<(Option<&Conditions>, usize)> = Vec::new();
        for run in &self.runs {
            match kinds.iter_mut().find(|(on, _)| *on == run.on.as_ref()) {
                Some((_, count)) => *count += 1,
                None => kinds.push((run.on.as_ref(), 1)),
            }
        }
        let told = |(on, count): &(Option<&Conditions>, usize)| match on {
            Some(on) => format!("{count} on {on}"),
            None => format!("{count} by a version that did not tell"),
        };
        let list: Vec<String> = kinds.iter().map(told).collect();
        (list.len() > 1).then(|| format!("not all executions ran on the same: {}", list.join("; ")))
    }

    /// Returns the record of each configuration's first repetition that succeeded and has one, named as what it is of.
    pub fn records(&self, output: &Output) -> Vec<(String, PathBuf)> {
        let mut records = Vec::new();
        for first in self.scenario.once() {
            let mut good: Vec<&RunResult> =
                self.runs.iter().filter(|result| result.succeeded() && result.is_like(&first)).collect();
            good.sort_by_key(|result| result.repetition);
            let record = |result: &&RunResult| output.record_of(&first.again(result.repetition));
            if let Some(record) = good.iter().find_map(record) {
                let values = first.parameters.iter().map(|(_, value)| format!(" {value}"));
                records.push((first.run.name.clone() + &values.collect::<String>(), record));
            }
        }
        records
    }

    /// Names those values that a plot or the summary asks for and no execution has given.
    pub fn unknown_values(&self) -> Vec<&str> {
        let asked = self.scenario.plots.iter().flat_map(|plot| &plot.y).chain(&self.scenario.columns);
        let succeeded = || self.runs.iter().filter(|result| result.succeeded());
        let mut unknown: Vec<&str> = Vec::new();
        for name in asked {
            if !unknown.contains(&name.as_str())
                && succeeded().next().is_some()
                && succeeded().all(|result| result.value(name).is_none())
            {
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
                "its version is {version}, and this program knows {RESULTS_VERSION} at most"
            ));
        }
        Some(_) => {}
        None => return Err("it is damaged: it has no version".to_owned()),
    }
    serde_json::from_value(value).map_err(|error| format!("it is damaged: {error}"))
}

#[cfg(test)]
pub(super) mod tests;
