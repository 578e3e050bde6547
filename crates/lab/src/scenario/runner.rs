//! Runs a scenario: what is left of a plan, one execution after the other.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::error::LabError;

use super::environment::Environment;
use super::execution::execute;
use super::outcome::RunResult;
use super::output::Output;
use super::plan::Execution;
use super::results::Results;
use super::shell;

/// Who hears how an experiment goes, may stop it, and can read records.
pub trait Watcher {
    /// Hears that an execution begins.
    fn begins(&mut self, begun: &Begun<'_>);

    /// Is called a few times a second with how long the command runs; a break ends the experiment.
    fn ticks(&mut self, elapsed: Duration) -> ControlFlow<()>;

    /// Hears that an execution has ended.
    fn ended(&mut self, execution: &Execution<'_>, result: &RunResult);

    /// Reads the values of a record that a near command has made.
    ///
    /// # Errors
    /// Says why it is no record; the execution is marked.
    fn read_record(&mut self, record: &Path) -> Result<Vec<(String, f64)>, String>;
}

/// How far an experiment is.
#[derive(Debug)]
pub struct Begun<'a> {
    /// The number of the execution in the plan, from 1; those done before count.
    pub number: usize,
    /// How many the plan has.
    pub total: usize,
    /// What is left of it, the execution that begins first.
    pub left: &'a [&'a Execution<'a>],
    /// All results so far.
    pub results: &'a Results,
}

/// Runs what is left of `plan`; `results.json` and the executions' files go to `output`.
///
/// `results.json` is complete after each execution. `program` is the running one, which commands shall
/// find by its name.
///
/// # Errors
/// Fails where a lab cannot be built or `output` cannot be written, where the scenario's own prepare or cleanup
/// fails, and with [`LabError::Interrupted`] where the watcher wants to stop. A command that fails is a result.
pub fn run_scenario(
    plan: &[Execution<'_>],
    results: &mut Results,
    output: &Output,
    program: &Path,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    let left = results.remaining(plan);
    if left.is_empty() {
        return Ok(());
    }
    let environment = Environment::new(&results.scenario, output, program)?;
    results.write(output)?;
    let done = prepare(results, &environment, output, watcher)
        .and_then(|()| execute_all(&left, plan.len(), results, &environment, output, watcher));
    done.and(clean_up(results, &environment, output, watcher))
}

fn execute_all(
    left: &[&Execution<'_>],
    total: usize,
    results: &mut Results,
    environment: &Environment,
    output: &Output,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    for (index, execution) in left.iter().enumerate() {
        if watcher.ticks(Duration::ZERO).is_break() {
            return Err(LabError::Interrupted);
        }
        let number = total - left.len() + index + 1;
        watcher.begins(&Begun { number, total, left: &left[index..], results });
        let result = execute(execution, environment, output, watcher)?;
        watcher.ended(execution, &result);
        results.put(execution, result);
        results.write(output)?;
    }
    Ok(())
}

fn prepare(
    results: &Results,
    environment: &Environment,
    output: &Output,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    match &results.scenario.prepare {
        Some(command) => shell::run("prepare", command, environment, &output.log("prepare")?, || {
            watcher.ticks(Duration::ZERO)
        }),
        None => Ok(()),
    }
}

/// Runs to its end, whatever ended the rest.
fn clean_up(
    results: &Results,
    environment: &Environment,
    output: &Output,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    match &results.scenario.cleanup {
        Some(command) => shell::run("cleanup", command, environment, &output.log("cleanup")?, || {
            let _ = watcher.ticks(Duration::ZERO);
            ControlFlow::Continue(())
        }),
        None => Ok(()),
    }
}
