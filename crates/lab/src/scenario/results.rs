//! All results of a scenario: `results.json`, and how a later run goes on from it.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::LabError;
use crate::spec::PathSpec;

use super::host_facts::HostFacts;
use super::outcome::RunResult;
use super::output::{Output, RESULTS};
use super::plan::Execution;
use super::{Scenario, SetParameter, csv, file, table};

/// By this such a file is known.
const MAGIC: &str = "longhaul lab";
/// Of the file that is written, and the newest that is read.
const VERSION: u32 = 1;

/// A scenario's results so far.
#[derive(Debug)]
pub struct Results {
    pub(super) scenario: Scenario,
    pub(super) host: HostFacts,
    /// The latest of each execution, in the order in which they ended.
    pub runs: Vec<RunResult>,
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
struct Read {
    host: HostFacts,
    runs: Vec<RunResult>,
    set: Vec<SetParameter>,
    source: String,
}

impl Results {
    /// Starts with none.
    pub fn new(scenario: &Scenario) -> Self {
        Self { scenario: scenario.clone(), host: HostFacts::now(), runs: Vec::new() }
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
        if !before.is_ok_and(|before| before.measures_as(scenario)) {
            return Err(LabError::OtherScenario { path });
        }
        Ok(Self { scenario: scenario.clone(), host: read.host, runs: read.runs })
    }

    /// Removes the results in a directory, and what the executions have left beside them.
    ///
    /// # Errors
    /// Fails where the kernel refuses.
    pub fn discard(output: &Output) -> Result<(), LabError> {
        const HEAD: usize = 200;
        let path = output.results();
        let json = fs::read(&path).unwrap_or_default();
        // Another program's results may lie beside a directory of the same name as ours.
        if String::from_utf8_lossy(&json[..json.len().min(HEAD)]).contains(MAGIC) {
            output.clear_all()?;
        }
        file::remove(&path)
    }

    /// Returns those executions of a plan that are missing or have failed.
    pub fn remaining<'p, 's>(&self, plan: &'p [Execution<'s>]) -> Vec<&'p Execution<'s>> {
        let done = |execution: &Execution<'_>| {
            self.runs.iter().any(|result| result.is_of(execution) && result.succeeded())
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
            results: MAGIC,
            version: VERSION,
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
        file::replace(&path, &json)
    }

    /// Writes `results.csv`, a row an execution, and `summary.md`, a row a configuration; returns the latter.
    ///
    /// # Errors
    /// Fails where they cannot be written.
    pub fn write_tables(&self, output: &Output) -> Result<String, LabError> {
        file::replace(&output.directory().join("results.csv"), csv::text(self).as_bytes())?;
        let summary = table::markdown(self);
        file::replace(&output.directory().join("summary.md"), table::page(self, &summary).as_bytes())?;
        Ok(summary)
    }

    /// Returns a sentence about the machine, and when the results were begun.
    pub fn conditions(&self) -> String {
        self.host.sentence()
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

fn read(json: &[u8]) -> Result<Read, String> {
    let value: Value = serde_json::from_slice(json).map_err(|error| format!("it is damaged: {error}"))?;
    if value["results"] != MAGIC {
        return Err("these are no results of `longhaul lab run`, or of a version before results were kept \
                    for later runs"
            .to_owned());
    }
    match value["version"].as_u64() {
        Some(version) if version > u64::from(VERSION) => {
            return Err(format!("its version is {version}, and this program knows {VERSION} at most"));
        }
        Some(_) => {}
        None => return Err("it is damaged: it has no version".to_owned()),
    }
    serde_json::from_value(value).map_err(|error| format!("it is damaged: {error}"))
}

#[cfg(test)]
pub(super) mod tests;
