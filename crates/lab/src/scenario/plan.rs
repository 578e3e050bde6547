//! The executions of a scenario, in order.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;

use crate::error::LabError;
use crate::spec::PathSpec;

use super::file_names::unique;
use super::sweep::path_key;
use super::{Run, Scenario};

/// Maximum executions of an experiment: more would take days.
const MAX_EXECUTIONS: u64 = 10_000;

/// A selection of a scenario's executions; all by default.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Names of the selected runs; all if empty.
    pub only: Vec<String>,
    /// Executions per seed, overriding the scenario.
    pub repeat: Option<NonZeroU32>,
}

/// One execution of a run's command, with its parameters and its repetition.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution<'a> {
    /// What runs.
    pub run: &'a Run,
    /// The swept parameters that apply to the run, with their values.
    pub parameters: Vec<(&'a str, &'a str)>,
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The path with swept values and seed.
    pub path: PathSpec,
    /// Prefix of its file names, without the repetition.
    stem: String,
}

impl Execution<'_> {
    /// Returns the prefix of its file names.
    pub(super) fn stem(&self) -> String {
        format!("{}-{}", self.stem, self.repetition)
    }

    /// Returns a copy with the file names of another repetition, and the original seed.
    pub(super) fn again(&self, repetition: u32) -> Self {
        Self { repetition, ..self.clone() }
    }
}

/// For example "longhaul recv_buffer=50MB (2)".
impl fmt::Display for Execution<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.run.name)?;
        for (name, value) in &self.parameters {
            write!(f, " {name}={value}")?;
        }
        write!(f, " ({})", self.repetition)
    }
}

impl Scenario {
    /// Lists the executions in order: each configuration once, then again, so that drift affects
    /// all configurations equally. All runs of one combination of values are adjacent.
    ///
    /// # Errors
    /// Fails if `selection` names an unknown run, or has too many executions.
    pub fn plan(&self, selection: &Selection) -> Result<Vec<Execution<'_>>, LabError> {
        let refuse = |why: String| LabError::scenario(&self.origin.file, &why);
        for name in &selection.only {
            if !self.runs.iter().any(|run| run.name == *name) {
                let names: Vec<_> = self.runs.iter().map(|run| run.name.as_str()).collect();
                let why = format!("--only {name}: there is no such run; there are: {}", names.join(", "));
                return Err(refuse(why));
            }
        }
        self.check_number(selection.repeat).map_err(refuse)?;
        let wanted = |run: &Run| selection.only.is_empty() || selection.only.contains(&run.name);
        Ok(self.order(selection.repeat).filter(|execution| wanted(execution.run)).collect())
    }

    /// Returns all executions.
    pub(super) fn executions(&self) -> impl Iterator<Item = Execution<'_>> {
        self.order(None)
    }

    /// Rejects an excessive number of executions before they are listed.
    pub(super) fn check_number(&self, repeat: Option<NonZeroU32>) -> Result<(), String> {
        let of_run = |run: &Run| {
            let values = run.sweep.iter().map(|index| self.sweep[*index].values.len() as u64);
            values.fold(self.repetitions(run, repeat), u64::saturating_mul)
        };
        let executions = self.runs.iter().map(of_run).fold(0, u64::saturating_add);
        if executions > MAX_EXECUTIONS {
            return Err(format!(
                "that makes {executions} executions, and {MAX_EXECUTIONS} are the most: sweep fewer values at once, \
                 repeat less often, or name under each [[run]]'s sweep the parameters that concern it"
            ));
        }
        Ok(())
    }

    fn repetitions(&self, run: &Run, repeat: Option<NonZeroU32>) -> u64 {
        u64::from(repeat.unwrap_or(run.repeat).get()).saturating_mul(self.seeds.len().max(1) as u64)
    }

    fn order(&self, repeat: Option<NonZeroU32>) -> impl Iterator<Item = Execution<'_>> {
        let first = self.once();
        let most = self.runs.iter().map(|run| self.repetitions(run, repeat)).max().unwrap_or(0);
        let rounds = 1..=u32::try_from(most).unwrap_or(u32::MAX);
        rounds.flat_map(move |round| {
            let runs_again =
                first.iter().filter(|first| u64::from(round) <= self.repetitions(first.run, repeat));
            let mut executions: Vec<Execution<'_>> = runs_again.map(|first| first.again(round)).collect();
            if !self.seeds.is_empty() {
                let seed = self.seeds[(round as usize - 1) % self.seeds.len()];
                executions.iter_mut().for_each(|execution| execution.path.seed = seed);
            }
            executions
        })
    }

    /// Returns the first execution of each run with each combination of its values, with the path's
    /// own seed; sorted by combination, then by run.
    pub(super) fn once<'a>(&'a self) -> Vec<Execution<'a>> {
        let mut all: Vec<(Vec<usize>, &Run)> = Vec::new();
        for run in &self.runs {
            let mut choices = vec![vec![0; self.sweep.len()]];
            for index in &run.sweep {
                let values = 0..self.sweep[*index].values.len();
                let each = |choice: Vec<usize>| {
                    values.clone().map(move |value| {
                        let mut choice = choice.clone();
                        choice[*index] = value;
                        choice
                    })
                };
                choices = choices.into_iter().flat_map(each).collect();
            }
            all.extend(choices.into_iter().map(|choice| (choice, run)));
        }
        // Stable sort: runs of one combination keep the order of the file.
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut stems = HashSet::new();
        let execution = |(choice, run): (Vec<usize>, &'a Run)| {
            let mut path = self.path.clone();
            for (key, value) in &run.path {
                // The value was validated when the scenario was parsed.
                let _ = path.set(key, value);
            }
            let mut parameters = Vec::new();
            for index in &run.sweep {
                let parameter = &self.sweep[*index];
                let value = parameter.values[choice[*index]].as_str();
                if let Some(key) = path_key(&parameter.name) {
                    let _ = path.set(key, value);
                }
                parameters.push((parameter.name.as_str(), value));
            }
            let stem = unique(stem(&run.name, &parameters), &mut stems);
            Execution { run, parameters, repetition: 1, path, stem }
        };
        all.into_iter().map(execution).collect()
    }
}

/// Returns the beginning of the file names of a run with values of its parameters.
fn stem(run: &str, parameters: &[(&str, &str)]) -> String {
    const MAX_STEM: usize = 180;
    let values = parameters.iter().map(|(_, value)| for_file(value));
    let mut stem = values.fold(run.to_owned(), |stem, value| stem + "-" + &value);
    stem.truncate(MAX_STEM);
    stem
}

/// Converts a value to a part of a file name.
fn for_file(value: &str) -> String {
    const MAX_VALUE_PART: usize = 24;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '=');
    value.chars().take(MAX_VALUE_PART).map(|c| if fits(c) { c } else { '_' }).collect()
}
