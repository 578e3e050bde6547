//! Runs the remaining executions of a scenario's plan, one after the other.

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
use super::shell::Shell;

/// What of an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionPhase {
    /// The scenario's command before all executions.
    Prepare,
    /// A command before an execution.
    Setup,
    /// The server command, before it serves.
    Server,
    /// What is measured.
    Command,
    /// A command after an execution, or after all.
    Cleanup,
}

impl ExecutionPhase {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Setup => "setup",
            Self::Server => "server",
            Self::Command => "command",
            Self::Cleanup => "cleanup",
        }
    }
}

/// Observes the progress of a scenario, may stop it, and reads records.
pub trait Watcher {
    /// Is called when an execution begins.
    fn begins(&mut self, begun: &Begun<'_>);

    /// Is called a few times a second with what runs, and for how long; a break ends the experiment.
    fn ticks(&mut self, phase: ExecutionPhase, elapsed: Duration) -> ControlFlow<()>;

    /// Is called when an execution has ended.
    fn ended(&mut self, execution: &Execution<'_>, result: &RunResult);

    /// Is called before an execution whose path was not the one asked for is repeated: `time` counts from 1 to `limit`.
    fn repeats(&mut self, time: u32, limit: u32);

    /// Reads the values of a record that a client command has made.
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
/// Fails where this machine does not permit a lab or `output` cannot be written, where the scenario's own prepare
/// or cleanup fails, and with [`LabError::Interrupted`] where the watcher wants to stop. A command that fails is a
/// result, and so is a path that cannot be.
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
    let cleanup = results.scenario.cleanup.as_ref().map(|command| {
        Shell::start_waiting(
            ExecutionPhase::Cleanup,
            command,
            &environment,
            &output.log(ExecutionPhase::Cleanup)?,
        )
    });
    let cleanup = cleanup.transpose()?;
    let done = prepare(results, &environment, output, watcher)
        .and_then(|()| execute_all(&left, plan.len(), results, &environment, output, watcher));
    // Whatever has ended the rest.
    let cleaned = cleanup.map(|shell| shell.wait(|elapsed| patiently(watcher, elapsed))).transpose();
    done.and(cleaned.map(drop))
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
        if watcher.ticks(ExecutionPhase::Setup, Duration::ZERO).is_break() {
            return Err(LabError::Interrupted);
        }
        let number = total - left.len() + index + 1;
        watcher.begins(&Begun { number, total, left: &left[index..], results });
        let mut result = execute(execution, environment, output, watcher)?;
        watcher.ended(execution, &result);
        results.put(execution, result.clone());
        results.write(output)?;
        for attempt in 2..=results.fidelity.retries.saturating_add(1) {
            if !result.is_marked() {
                break;
            }
            watcher.repeats(attempt - 1, results.fidelity.retries);
            result = repeat(execution, result, environment, output, watcher)?;
            result.attempts = attempt;
            results.put(execution, result.clone());
            results.write(output)?;
        }
    }
    Ok(())
}

/// Runs an execution again; returns the new result, or `earlier`, with its files, where the command fails this time.
///
/// # Errors
/// Fails as [`execute`] does; the files of `earlier` are in place then, too.
fn repeat(
    execution: &Execution<'_>,
    mut earlier: RunResult,
    environment: &Environment,
    output: &Output,
    watcher: &mut dyn Watcher,
) -> Result<RunResult, LabError> {
    let kept = output.set_aside(execution)?;
    let again = execute(execution, environment, output, watcher);
    if let Ok(again) = &again {
        watcher.ended(execution, again);
    }
    match again {
        Ok(again) if again.succeeded() => {
            kept.remove()?;
            Ok(again)
        }
        failed => {
            kept.put_back()?;
            failed?;
            earlier
                .remarks
                .push("a repetition for the path's sake failed; this is the result before it".to_owned());
            Ok(earlier)
        }
    }
}

fn prepare(
    results: &Results,
    environment: &Environment,
    output: &Output,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    let Some(command) = &results.scenario.prepare else { return Ok(()) };
    let shell =
        Shell::start(ExecutionPhase::Prepare, command, environment, &output.log(ExecutionPhase::Prepare)?)?;
    shell.wait(|elapsed| watcher.ticks(ExecutionPhase::Prepare, elapsed))
}

/// Tells how long a cleanup runs, and lets it run to its end.
pub(super) fn patiently(watcher: &mut dyn Watcher, elapsed: Duration) -> ControlFlow<()> {
    let _ = watcher.ticks(ExecutionPhase::Cleanup, elapsed);
    ControlFlow::Continue(())
}
