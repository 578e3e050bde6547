//! Runs the remaining executions of a scenario's plan, one after the other.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::error::LabError;

use super::environment::Environment;
use super::execution::execute;
use super::outcome::RunResult;
use super::plan::Execution;
use super::results::Results;
use super::results_directory::ResultsDirectory;
use super::shell::Shell;

/// The phases of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionPhase {
    /// The scenario's command before all executions.
    Prepare,
    /// A command before an execution.
    Setup,
    /// The server command, until it listens.
    Server,
    /// The measured command.
    Command,
    /// A command after an execution, or after all executions.
    Cleanup,
}

impl ExecutionPhase {
    /// Returns the phase's name.
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
    /// Called at the start of an execution.
    fn execution_started(&mut self, begun: &ExecutionStart<'_>);

    /// Called a few times per second with the current phase and its duration; a break ends the experiment.
    fn tick(&mut self, phase: ExecutionPhase, elapsed: Duration) -> ControlFlow<()>;

    /// Called at the end of an execution.
    fn execution_ended(&mut self, execution: &Execution<'_>, result: &RunResult);

    /// Called before an execution is repeated because its path deviated: `time` counts from 1 to `limit`.
    fn execution_repeated(&mut self, time: u32, limit: u32);

    /// Reads the values of a client command's record.
    ///
    /// # Errors
    /// The reason why the file is not a record; the execution gets a remark.
    fn read_record(&mut self, record: &Path) -> Result<Vec<(String, f64)>, String>;
}

/// Progress of an experiment.
#[derive(Debug)]
pub struct ExecutionStart<'a> {
    /// Number of the execution in the plan, from 1; completed ones count.
    pub number: usize,
    /// Executions in the plan.
    pub total: usize,
    /// Remaining executions, starting with the current one.
    pub left: &'a [&'a Execution<'a>],
    /// All results so far.
    pub results: &'a Results,
}

/// Runs the remaining executions of `plan`; `results.json` and the executions' files are written to `output`.
///
/// `results.json` is complete after each execution. `program` is the running program, which commands find by its name.
///
/// # Errors
/// Fails if this machine does not permit a lab, `output` is not writable, or the scenario's prepare or cleanup command
/// fails; with [`LabError::Interrupted`] if the watcher requests a stop. A failed command and an impossible path are
/// results, not errors.
pub fn run_scenario(
    plan: &[Execution<'_>],
    results: &mut Results,
    output: &ResultsDirectory,
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
        let log = output.log(ExecutionPhase::Cleanup)?;
        Shell::start(ExecutionPhase::Cleanup, command, &environment, &log)
    });
    let cleanup = cleanup.transpose()?;
    let done = prepare(results, &environment, output, watcher)
        .and_then(|()| execute_all(&left, plan.len(), results, &environment, output, watcher));
    // The cleanup runs after any error.
    let cleaned = cleanup.map(|shell| shell.wait(|elapsed| report_cleanup(watcher, elapsed))).transpose();
    done.and(cleaned.map(drop))
}

fn execute_all(
    left: &[&Execution<'_>],
    total: usize,
    results: &mut Results,
    environment: &Environment,
    output: &ResultsDirectory,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    for (index, execution) in left.iter().enumerate() {
        if watcher.tick(ExecutionPhase::Setup, Duration::ZERO).is_break() {
            return Err(LabError::Interrupted);
        }
        let number = total - left.len() + index + 1;
        watcher.execution_started(&ExecutionStart { number, total, left: &left[index..], results });
        let mut result = execute(execution, environment, output, watcher)?;
        watcher.execution_ended(execution, &result);
        results.put(execution, result.clone());
        results.write(output)?;
        for attempt in 2..=results.fidelity.retries.saturating_add(1) {
            if !result.is_marked() {
                break;
            }
            watcher.execution_repeated(attempt - 1, results.fidelity.retries);
            result = repeat(execution, result, environment, output, watcher)?;
            result.attempts = attempt;
            results.put(execution, result.clone());
            results.write(output)?;
        }
    }
    Ok(())
}

/// Repeats an execution; returns the new result, or `earlier` with its files if the command fails this time.
///
/// # Errors
/// As [`execute`]; the files of `earlier` are restored first.
fn repeat(
    execution: &Execution<'_>,
    mut earlier: RunResult,
    environment: &Environment,
    output: &ResultsDirectory,
    watcher: &mut dyn Watcher,
) -> Result<RunResult, LabError> {
    let kept = output.set_aside(execution)?;
    let again = execute(execution, environment, output, watcher);
    if let Ok(again) = &again {
        watcher.execution_ended(execution, again);
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
    output: &ResultsDirectory,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    let Some(command) = &results.scenario.prepare else { return Ok(()) };
    let shell =
        Shell::start(ExecutionPhase::Prepare, command, environment, &output.log(ExecutionPhase::Prepare)?)?;
    shell.wait(|elapsed| watcher.tick(ExecutionPhase::Prepare, elapsed))
}

/// Reports the duration of a cleanup, without stopping it.
pub(super) fn report_cleanup(watcher: &mut dyn Watcher, elapsed: Duration) -> ControlFlow<()> {
    let _ = watcher.tick(ExecutionPhase::Cleanup, elapsed);
    ControlFlow::Continue(())
}
