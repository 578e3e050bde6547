//! Parses a scenario's TOML; rejects unknown keys and invalid values, with their line.

use std::collections::HashSet;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use longhaul_core::units::Rtt;

use crate::error::LabError;
use crate::spec::PathSpec;

use super::file_names::{check_name, fitting};
use super::raw_toml::{RawRun, RawScenario};
use super::sweep::path_key;
use super::{Evaluation, Parameter, RUN, Run, Scenario, ScenarioOrigin, ScenarioServer, SetParameter, plot};

/// Columns of the summary, unless the scenario sets others.
const DEFAULT_COLUMNS: [&str; 2] = ["wall_s", "cpu_s"];

impl Scenario {
    /// Reads a scenario file; `set` replaces values of its sweep or its path.
    ///
    /// # Errors
    /// Fails if the file is unreadable, is not TOML, or holds an unknown key or an invalid value;
    /// names the file, and the line if known.
    pub fn load(path: &Path, set: &[SetParameter]) -> Result<Self, LabError> {
        let text = fs::read_to_string(path).map_err(LabError::read(path))?;
        Self::from_text(&text, path, set)
    }

    /// Parses the text of a scenario file; `path` names the file in errors and provides the default
    /// name.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_text(text: &str, path: &Path, set: &[SetParameter]) -> Result<Self, LabError> {
        Self::parse(text, path, set).map_err(|why| LabError::scenario(path, &why))
    }

    /// Parses a scenario; `file` provides the default name.
    pub(super) fn parse(text: &str, file: &Path, set: &[SetParameter]) -> Result<Self, String> {
        let mut raw: RawScenario = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut choices = raw.sweep.clone();
        choices.push((RUN.to_owned(), raw.run.iter().map(|run| run.name.clone()).collect()));
        for replacement in set {
            apply(replacement, &mut raw)?;
        }
        let sweep = raw.sweep.into_iter().map(|(name, values)| Parameter::new(name, values));
        let sweep = sweep.collect::<Result<Vec<_>, _>>()?;
        plot::complete(&mut raw.plot, &choices)?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let each = raw.each;
        let runs = raw.run.into_iter().map(|mut run| {
            run.setup = run.setup.or_else(|| each.setup.clone());
            run.cleanup = run.cleanup.or_else(|| each.cleanup.clone());
            run.timeout = run.timeout.or(each.timeout);
            make_run(run, raw.repeat, raw.server.as_ref(), &sweep)
        });
        let scenario = Self {
            name: raw.name.unwrap_or_else(|| fitting(&stem)),
            path: raw.path,
            seeds: raw.seeds.clone().unwrap_or_default(),
            prepare: raw.prepare,
            cleanup: raw.cleanup,
            needs: raw.needs,
            runs: runs.collect::<Result<_, _>>()?,
            evaluation: Evaluation {
                plots: raw.plot,
                columns: raw.table.columns.unwrap_or_else(|| DEFAULT_COLUMNS.map(str::to_owned).to_vec()),
                goals: raw.goal,
            },
            sweep,
            origin: ScenarioOrigin { file: file.to_owned(), source: text.to_owned(), set: set.to_vec() },
        };
        if raw.seeds.is_some_and(|seeds| seeds.is_empty()) {
            return Err("seeds is empty: give at least one, or leave it out".to_owned());
        }
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if self.runs.is_empty() {
            return Err("there is no [[run]]".to_owned());
        }
        let mut names = HashSet::new();
        for run in &self.runs {
            check_name(&run.name)?;
            if !names.insert(&run.name) {
                return Err(format!("two [[run]]s have the name '{}'", run.name));
            }
        }
        self.check_sweep()?;
        let runs: Vec<_> = self.runs.iter().map(|run| run.name.as_str()).collect();
        let parameters: Vec<_> = self.sweep.iter().map(|parameter| parameter.name.as_str()).collect();
        self.evaluation.goals.iter().try_for_each(|goal| goal.check(&runs, &parameters))?;
        self.check_number(None)?;
        self.check_paths()
    }

    fn check_sweep(&self) -> Result<(), String> {
        let mut variables = HashSet::new();
        for (index, parameter) in self.sweep.iter().enumerate() {
            if !variables.insert(parameter.variable()) {
                return Err(format!("[sweep] two parameters are ${} to a command", parameter.variable()));
            }
            if !self.runs.iter().any(|run| run.sweep.contains(&index)) {
                return Err(format!("[sweep] {}: it concerns no [[run]]", parameter.name));
            }
            if path_key(&parameter.name) == Some("seed") && !self.seeds.is_empty() {
                return Err(
                    "[sweep] path.seed and seeds both choose the path's seed: leave one out".to_owned()
                );
            }
        }
        Ok(())
    }

    /// Rejects values that are valid alone but not in combination.
    fn check_paths(&self) -> Result<(), String> {
        for execution in self.executions() {
            execution.path.validate().map_err(|error| {
                let of_path = |(name, _): &&(&str, &str)| path_key(name).is_some();
                let swept: Vec<_> = execution.parameters.iter().filter(of_path).collect();
                let with: String =
                    swept.iter().map(|(name, value)| format!(" with {name} = '{value}'")).collect();
                let run = &execution.run;
                let of_run =
                    if run.path.is_empty() { String::new() } else { format!("[[run]] '{}': ", run.name) };
                format!("{of_run}[path]{with} {error}")
            })?;
        }
        Ok(())
    }
}

/// Replaces values of the file by the user's.
fn apply(set: &SetParameter, raw: &mut RawScenario) -> Result<(), String> {
    if let Some((_, values)) = raw.sweep.iter_mut().find(|(name, _)| *name == set.name) {
        set.values.clone_into(values);
        return Ok(());
    }
    let known_to_path = path_key(&set.name).filter(|key| PathSpec::is_key(key));
    match (known_to_path, set.values.as_slice()) {
        (Some(key), [value]) => raw.path.set(key, value).map_err(|error| format!("--set path.{error}")),
        (Some(_), _) => Err(format!("--set {0}: [sweep] has no '{0}', so that it takes one value", set.name)),
        (None, _) => {
            let names: Vec<_> = raw.sweep.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!(
                "--set {}: there is no such parameter; [sweep] has: {}; and path.KEY sets a value of the path",
                set.name,
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ))
        }
    }
}

fn make_run(
    raw: RawRun,
    repeat: NonZeroU32,
    server: Option<&ScenarioServer>,
    sweep: &[Parameter],
) -> Result<Run, String> {
    let wrong = |why: String| Err(format!("[[run]] '{}': {why}", raw.name));
    let mut concerned: Vec<usize> = Vec::new();
    match &raw.sweep {
        None => concerned.extend(0..sweep.len()),
        Some(names) => {
            for name in names {
                match sweep.iter().position(|parameter| parameter.name == *name) {
                    None => return wrong(format!("sweep names '{name}', which [sweep] does not have")),
                    Some(index) if concerned.contains(&index) => {
                        return wrong(format!("sweep names '{name}' twice"));
                    }
                    Some(index) => concerned.push(index),
                }
            }
            concerned.sort_unstable();
        }
    }
    let swept = |key: &str| concerned.iter().any(|index| path_key(&sweep[*index].name) == Some(key));
    if let Some((key, _)) = raw.path.iter().find(|(key, _)| swept(key)) {
        return wrong(format!("its path sets '{key}', which it sweeps too: name the others under its sweep"));
    }
    let server = match (raw.server, raw.port) {
        // A server command of a run must listen on the port of the other runs, unless the run sets
        // a port.
        (Some(command), port) => {
            Some(ScenarioServer { command, port: port.or(server.and_then(|server| server.port)) })
        }
        (None, Some(_)) => {
            return wrong("a port needs a server command of its own: server = \"...\"".to_owned());
        }
        (None, None) => server.cloned(),
    };
    Ok(Run {
        name: raw.name,
        command: raw.command,
        server,
        repeat: raw.repeat.unwrap_or(repeat),
        timeout: raw.timeout.map(Rtt::get),
        path: raw.path,
        sweep: concerned,
        setup: raw.setup,
        cleanup: raw.cleanup,
        needs: raw.needs,
    })
}

#[cfg(test)]
mod tests;
