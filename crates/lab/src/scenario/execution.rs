//! One execution: set-up, measurement, clean-up.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::clock::{self, Clock};
use crate::error::LabError;
use crate::host::{FinishedCommand, ServerCommand, ServerCommandFailure};
use crate::lab::Lab;

use super::environment::Environment;
use super::host_facts::Conditions;
use super::outcome::RunResult;
use super::plan::Execution;
use super::progress::ReportedProgress;
use super::results_directory::{ExecutionFiles, OUT_OPTION, ResultsDirectory};
use super::runner::{ExecutionPhase, Watcher};
use super::shell::Shell;
use super::{ScenarioServer, last_output_line, stdout};

/// Runs an execution on a fresh lab, without state of earlier executions.
///
/// # Errors
/// Fails if this machine does not permit a lab, files cannot be written, or the watcher requests a
/// stop. A failed command is a result, not an error.
pub(super) fn execute(
    execution: &Execution<'_>,
    environment: &Environment,
    output: &ResultsDirectory,
    watcher: &mut dyn Watcher,
) -> Result<RunResult, LabError> {
    let files = output.clear(execution)?;
    let mut result = RunResult::new(execution, clock::since_1970());
    result.on = Some(Conditions::now());
    let attempt = Attempt { execution, environment: environment.of(execution), files, result: &mut result };
    attempt.run(watcher)?;
    Ok(result)
}

struct Attempt<'a> {
    execution: &'a Execution<'a>,
    environment: Environment,
    files: ExecutionFiles,
    result: &'a mut RunResult,
}

impl Attempt<'_> {
    fn run(mut self, watcher: &mut dyn Watcher) -> Result<(), LabError> {
        let environment = self.environment.with_record(&self.files.record);
        let shell = |phase, command: &Option<String>| {
            let start = |command: &String| Shell::start(phase, command, &environment, &self.files.machine);
            command.as_ref().map(start).transpose()
        };
        let cleanup = shell(ExecutionPhase::Cleanup, &self.execution.run.cleanup)?;
        let set_up = shell(ExecutionPhase::Setup, &self.execution.run.setup)
            .and_then(|shell| shell.map_or(Ok(()), |shell| shell.wait(watcher)));
        // The log of setup and cleanup does not exist without either.
        let setup_log = fs::metadata(&self.files.machine).map_or(0, |log| log.len());
        let measured = set_up.and_then(|()| self.measure_on_lab(watcher));
        let measured = self.note_failure(measured);
        // The cleanup always runs, to its end.
        let cleaned = cleanup.map_or(Ok(()), |shell| shell.wait(watcher));
        let cleaned = self.note_failure(cleaned);
        measured.and(cleaned)?;
        self.read_values(setup_log, watcher);
        if self.result.failed_itself() {
            self.result.end.said =
                Some(last_output_line::quote(&[&self.files.client_errors, &self.files.client]));
        }
        Ok(())
    }

    /// Stores an error of this execution alone in its result; returns errors that end the
    /// experiment.
    fn note_failure(&mut self, outcome: Result<(), LabError>) -> Result<(), LabError> {
        match outcome {
            Err(error @ LabError::NotListening { .. }) => {
                let said = last_output_line::quote(&[&self.files.server]);
                self.result.end.error.get_or_insert(format!("{error}; {said}"));
                Ok(())
            }
            // The kernel rejects this configuration's path; other configurations may still work.
            Err(error @ (LabError::Shell { .. } | LabError::Setting { .. } | LabError::Spec { .. })) => {
                self.result.end.error.get_or_insert(error.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn measure_on_lab(&mut self, watcher: &mut dyn Watcher) -> Result<(), LabError> {
        let lab = Lab::new(self.execution.path.clone())?;
        let server = &self.execution.run.server;
        let mut serving = server.as_ref().map(|server| self.start_server(&lab, server)).transpose()?;
        let ready = match (&mut serving, server.as_ref().and_then(|server| server.port)) {
            (Some(serving), Some(port)) => serving
                .wait_until_listening(port.get(), |elapsed| watcher.tick(ExecutionPhase::Server, elapsed)),
            _ => Ok(()),
        };
        let measured = ready.and_then(|()| Ok((self.measure(&lab, watcher)?, lab.stats()?)));
        // Stops the server with SIGTERM even after an error, so that it completes its record.
        let served = serving.map(ServerCommand::end).transpose();
        let (ended, stats) = measured?;
        self.result.set_ended(&ended);
        self.result.set_link(stats, lab.spec());
        if let Some(end) = served?.flatten() {
            let said = last_output_line::quote(&[&self.files.server]);
            let why = format!("the server command {end}; {said}");
            match end {
                ServerCommandFailure::Early(_) => self.result.end.error = Some(why),
                ServerCommandFailure::Killed => self.result.remarks.push(why),
            }
        }
        Ok(())
    }

    fn start_server(&self, lab: &Lab, server: &ScenarioServer) -> Result<ServerCommand, LabError> {
        ServerCommand::start(&lab.server(), &server.command, |shell| {
            self.environment.with_record(&self.files.server_record).apply_on_host(shell);
            let log = create(&self.files.server)?;
            let errors = log.try_clone().map_err(LabError::create(&self.files.server, OUT_OPTION))?;
            shell.stderr(errors).stdout(log);
            Ok(())
        })
    }

    /// Runs the command on the client; kills its process group on timeout or on a stop request.
    fn measure(&self, lab: &Lab, watcher: &mut dyn Watcher) -> Result<FinishedCommand, LabError> {
        let timeout = self.execution.run.timeout;
        let mut shell = lab.client().shell(&self.execution.run.command);
        self.environment.with_record(&self.files.record).apply_on_host(&mut shell);
        shell.stdout(create(&self.files.client)?).stderr(create(&self.files.client_errors)?);

        let clock = Clock::start();
        let process = lab.client().spawn(shell)?;
        process.watch(clock, timeout, |elapsed| watcher.tick(ExecutionPhase::Command, elapsed))
    }

    /// Reads the values that the command printed and recorded, and those that the cleanup printed
    /// after `setup_log` bytes of the setup.
    fn read_values(&mut self, setup_log: u64, watcher: &mut dyn Watcher) {
        let result = &mut *self.result;
        for (output, start) in [(&self.files.client, 0), (&self.files.machine, setup_log)] {
            match stdout::numbers(output, start) {
                Ok(numbers) => result.add_values(numbers),
                // The command was never started; there is no setup and no cleanup.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    result.remarks.push(format!("cannot read {}: {error}", output.display()));
                }
            }
        }
        for (record, prefix) in [(&self.files.record, ""), (&self.files.server_record, "server_")] {
            if record.is_file() {
                match watcher.read_record(record) {
                    Ok(values) => {
                        result.add_values(
                            values.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)),
                        );
                    }
                    Err(why) => result.remarks.push(why),
                }
            }
        }
        result.add_ceiling();
        // No samples: the command prints no progress, or was never started.
        let progress = ReportedProgress::read(&self.files.client).unwrap_or_default();
        result.add_progress(&progress, &self.execution.path);
    }
}

fn create(path: &Path) -> Result<File, LabError> {
    File::create(path).map_err(LabError::create(path, OUT_OPTION))
}
