//! One execution: what is set up, measured and cleaned up.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::clock::{self, Clock};
use crate::error::LabError;
use crate::host::{FarCommand, Process};
use crate::lab::Lab;
use crate::model::Time;

use super::environment::Environment;
use super::outcome::{Ended, RunResult};
use super::output::{Files, Output};
use super::plan::Execution;
use super::runner::Watcher;
use super::shell::{self, GRACE, TICK};
use super::{Far, stdout};

/// Runs an execution on a lab of its own, so that it inherits nothing.
///
/// # Errors
/// Fails where a lab cannot be built, files cannot be written, or the watcher wants to stop. Commands that
/// fail are a result.
pub(super) fn execute(
    execution: &Execution<'_>,
    environment: &Environment,
    output: &Output,
    watcher: &mut dyn Watcher,
) -> Result<RunResult, LabError> {
    let files = output.clear(execution)?;
    let mut result = RunResult::new(execution, clock::since_1970());
    let attempt = Attempt { execution, environment: environment.of(execution), files, result: &mut result };
    attempt.run(watcher)?;
    Ok(result)
}

struct Attempt<'a> {
    execution: &'a Execution<'a>,
    environment: Environment,
    files: Files,
    result: &'a mut RunResult,
}

impl Attempt<'_> {
    fn run(mut self, watcher: &mut dyn Watcher) -> Result<(), LabError> {
        let measured = self.set_up(watcher).and_then(|()| self.measure_on_lab(watcher));
        let measured = self.note_failure(measured);
        // Whatever has happened, and not to be hurried.
        let cleaned = match &self.execution.run.cleanup {
            Some(command) => self.on_machine("cleanup", command, watcher, false),
            None => Ok(()),
        };
        let cleaned = self.note_failure(cleaned);
        measured.and(cleaned)?;
        self.read_values(watcher);
        Ok(())
    }

    fn set_up(&self, watcher: &mut dyn Watcher) -> Result<(), LabError> {
        match &self.execution.run.setup {
            Some(command) => self.on_machine("setup", command, watcher, true),
            None => Ok(()),
        }
    }

    fn on_machine(
        &self,
        what: &'static str,
        command: &str,
        watcher: &mut dyn Watcher,
        may_stop: bool,
    ) -> Result<(), LabError> {
        let environment = self.environment.with_record(&self.files.record);
        shell::run(what, command, &environment, &self.files.machine, || {
            let wish = watcher.ticks(Duration::ZERO);
            if may_stop { wish } else { std::ops::ControlFlow::Continue(()) }
        })
    }

    /// Makes what belongs to this execution alone a part of its result; all else ends the experiment.
    fn note_failure(&mut self, outcome: Result<(), LabError>) -> Result<(), LabError> {
        match outcome {
            Err(error @ (LabError::Shell { .. } | LabError::NotListening { .. })) => {
                self.result.error.get_or_insert(error.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn measure_on_lab(&mut self, watcher: &mut dyn Watcher) -> Result<(), LabError> {
        let lab = Lab::new(self.execution.path.clone())?;
        let far = match &self.execution.run.far {
            Some(far) => Some(self.start_far(&lab, far)?),
            None => None,
        };
        let ended = self.measure(&lab, watcher)?;
        self.result.set_ended(&ended);
        self.result.set_link(lab.stats()?, lab.spec());
        if let Some(status) = far.map(FarCommand::end).transpose()?.flatten() {
            self.result.warnings.push(format!("the far command ended early: {status}"));
        }
        Ok(())
    }

    fn start_far(&self, lab: &Lab, far: &Far) -> Result<FarCommand, LabError> {
        let mut command = FarCommand::start(&lab.far(), &far.command, |shell| {
            self.environment.with_record(&self.files.far_record).give(shell);
            let log = create(&self.files.far)?;
            shell.stderr(copy(&log, &self.files.far)?).stdout(log);
            Ok(())
        })?;
        if let Some(port) = far.port {
            command.wait_until_listening(port)?;
        }
        Ok(command)
    }

    /// Runs the command on the near host; ends it, with what it started, when its time is over or it is to stop.
    fn measure(&self, lab: &Lab, watcher: &mut dyn Watcher) -> Result<Ended, LabError> {
        let timeout = self.execution.run.timeout;
        let mut shell = self.near_shell(lab)?;
        shell.stdout(create(&self.files.near)?).stderr(create(&self.files.near_errors)?);

        let clock = Clock::start();
        let wall = || clock.now().since(Time::START);
        let mut process = lab.near().spawn(shell)?;
        loop {
            let left = timeout.map_or(TICK, |timeout| timeout.saturating_sub(wall()).min(TICK));
            if let Some(finished) = process.wait_for(left)? {
                return Ok(Ended { finished, wall: wall(), timed_out: false });
            }
            if watcher.ticks(wall()).is_break() {
                end(&mut process)?;
                return Err(LabError::Interrupted);
            }
            if timeout.is_some_and(|timeout| wall() >= timeout) {
                end(&mut process)?;
                return Ok(Ended { finished: process.wait()?, wall: wall(), timed_out: true });
            }
        }
    }

    fn near_shell(&self, lab: &Lab) -> Result<Command, LabError> {
        let mut shell = lab.near().command("sh");
        self.environment.with_record(&self.files.record).give(&mut shell);
        shell.args(["-c", &self.execution.run.command]).stdin(Stdio::null()).process_group(0);
        Ok(shell)
    }

    /// Reads what the command has printed and recorded.
    fn read_values(&mut self, watcher: &mut dyn Watcher) {
        let result = &mut *self.result;
        match stdout::numbers(&self.files.near) {
            Ok(numbers) => result.add_values(numbers),
            // It was never started.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                result.warnings.push(format!("cannot read {}: {error}", self.files.near.display()));
            }
        }
        if self.files.record.is_file() {
            match watcher.read_record(&self.files.record) {
                Ok(values) => result.add_values(values),
                Err(why) => result.warnings.push(why),
            }
        }
        result.add_ceiling();
    }
}

/// Ends a command with its group, first gently.
fn end(process: &mut Process) -> Result<(), LabError> {
    process.terminate_group()?;
    if process.wait_for(GRACE)?.is_none() {
        process.kill()?;
    }
    process.wait().map(drop)
}

fn create(path: &Path) -> Result<File, LabError> {
    File::create(path).map_err(|cause| LabError::Create { path: path.to_owned(), cause })
}

fn copy(file: &File, path: &Path) -> Result<File, LabError> {
    file.try_clone().map_err(|cause| LabError::Create { path: path.to_owned(), cause })
}
