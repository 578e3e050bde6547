//! Runs a scenario's set-up and clean-up commands on the machine.

use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::clock::Clock;
use crate::error::LabError;
use crate::host::Process;

use super::environment::Environment;
use super::last_output_line;
use super::results_directory::OUT_OPTION;
use super::runner::{ExecutionPhase, Watcher};

/// A shell command on this machine; its output is appended to a file.
pub(super) struct Shell {
    phase: ExecutionPhase,
    process: Process,
    log: PathBuf,
}

impl Shell {
    /// Starts `command` with `sh -c`.
    ///
    /// A cleanup runs on [`wait`](Self::wait), or when this process ends in any way: only a shell
    /// that is already waiting survives a SIGKILL.
    ///
    /// # Errors
    /// Fails if it cannot be started.
    pub(super) fn start(
        phase: ExecutionPhase,
        command: &str,
        environment: &Environment,
        log: &Path,
    ) -> Result<Self, LabError> {
        let (command, stdin) = match phase {
            // `read` returns at the end of its input, which only this process holds open.
            ExecutionPhase::Cleanup => (format!("read -r _\n{command}"), Stdio::piped()),
            _ => (command.to_owned(), Stdio::null()),
        };
        let cannot_create = LabError::create(log, OUT_OPTION);
        let out = OpenOptions::new().create(true).append(true).open(log).map_err(&cannot_create)?;
        let errors = out.try_clone().map_err(&cannot_create)?;
        let mut shell = Command::new("sh");
        environment.apply_to(&mut shell);
        // Its own process group, out of reach of the terminal's Ctrl-C.
        shell.args(["-c", &command]).stdin(stdin).stdout(out).stderr(errors).process_group(0);
        let child = shell.spawn().map_err(LabError::host("start sh on this machine"))?;
        Ok(Self { phase, process: Process::new(child, None), log: log.to_owned() })
    }

    /// Waits for the command, or until the watcher requests a stop, which kills its process group;
    /// a cleanup runs to its end.
    ///
    /// # Errors
    /// Fails if the command fails; with [`LabError::Interrupted`] if the watcher requests a stop.
    pub(super) fn wait(mut self, watcher: &mut dyn Watcher) -> Result<(), LabError> {
        drop(self.process.stdin());
        let tick = |elapsed| match (self.phase, watcher.tick(self.phase, elapsed)) {
            (ExecutionPhase::Cleanup, _) => ControlFlow::Continue(()),
            (_, flow) => flow,
        };
        let status = self.process.watch(Clock::start(), None, tick)?.finished.status;
        if status.success() {
            return Ok(());
        }
        Err(LabError::Shell { what: self.phase.name(), status, said: last_output_line::quote(&[&self.log]) })
    }
}
