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

    /// Called a few times per second with the current phase and its duration; a break ends the
    /// experiment.
    fn tick(&mut self, phase: ExecutionPhase, elapsed: Duration) -> ControlFlow<()>;

    /// Called at the end of an execution.
    fn execution_ended(&mut self, execution: &Execution<'_>, result: &RunResult);

    /// Called before an execution is repeated because its path deviated: `time` counts from 1 to
    /// `limit`.
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

/// Runs the remaining executions of `plan`; `results.json` and the executions' files are written to
/// `output`.
///
/// `results.json` is complete after each execution. `program` is the running program, which
/// commands find by its name.
///
/// # Errors
/// Fails if this machine does not permit a lab, `output` is not writable, or the scenario's prepare
/// or cleanup command fails; with [`LabError::Interrupted`] if the watcher requests a stop. A
/// failed command and an impossible path are results, not errors.
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
    let shell = |phase, command: &Option<String>| {
        let start = |command: &String| Shell::start(phase, command, &environment, &output.log(phase)?);
        command.as_ref().map(start).transpose()
    };
    let cleanup = shell(ExecutionPhase::Cleanup, &results.scenario.cleanup)?;
    let prepared = shell(ExecutionPhase::Prepare, &results.scenario.prepare)
        .and_then(|shell| shell.map_or(Ok(()), |shell| shell.wait(watcher)));
    let mut runner = Runner { results, environment: &environment, output, watcher };
    let done = prepared.and_then(|()| runner.execute_all(&left, plan.len()));
    // The cleanup runs after any error.
    done.and(cleanup.map_or(Ok(()), |shell| shell.wait(runner.watcher)))
}

/// What the executions of a scenario need.
struct Runner<'a> {
    results: &'a mut Results,
    environment: &'a Environment,
    output: &'a ResultsDirectory,
    watcher: &'a mut dyn Watcher,
}

impl Runner<'_> {
    fn execute_all(&mut self, left: &[&Execution<'_>], total: usize) -> Result<(), LabError> {
        for (index, execution) in left.iter().enumerate() {
            if self.watcher.tick(ExecutionPhase::Setup, Duration::ZERO).is_break() {
                return Err(LabError::Interrupted);
            }
            let (number, left) = (total - left.len() + index + 1, &left[index..]);
            let results = &*self.results;
            self.watcher.execution_started(&ExecutionStart { number, total, left, results });
            let mut result = self.execute(execution)?;
            self.put(execution, &result)?;
            let retries = self.results.fidelity.retries;
            for retry in 1..=retries {
                if !result.is_marked() {
                    break;
                }
                self.watcher.execution_repeated(retry, retries);
                result = self.repeat(execution, result)?;
                result.attempts = retry.saturating_add(1);
                self.put(execution, &result)?;
            }
        }
        Ok(())
    }

    fn execute(&mut self, execution: &Execution<'_>) -> Result<RunResult, LabError> {
        let result = execute(execution, self.environment, self.output, self.watcher)?;
        self.watcher.execution_ended(execution, &result);
        Ok(result)
    }

    fn put(&mut self, execution: &Execution<'_>, result: &RunResult) -> Result<(), LabError> {
        self.results.put(execution, result.clone());
        self.results.write(self.output)
    }

    /// Repeats an execution; returns the new result, or `earlier` with its files if the command
    /// fails this time.
    ///
    /// # Errors
    /// As [`execute`]; the files of `earlier` are restored first.
    fn repeat(&mut self, execution: &Execution<'_>, mut earlier: RunResult) -> Result<RunResult, LabError> {
        let kept = self.output.set_aside(execution)?;
        match self.execute(execution) {
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
}
