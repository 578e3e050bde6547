//! Runs a scenario's set-up and clean-up commands on the machine.

use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::LabError;
use crate::host::Process;
use crate::model::Time;

use super::environment::Environment;
use super::last_output_line;
use super::results_directory::OUT_OPTION;
use super::runner::ExecutionPhase;

/// Interval at which a running command checks for a stop request.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// A shell command on this machine; its output is appended to a file.
pub(super) struct Shell {
    phase: ExecutionPhase,
    process: Process,
    log: PathBuf,
}

impl Shell {
    /// Starts `command` with `sh -c`.
    ///
    /// A cleanup runs on [`wait`](Self::wait), or when this process ends in any way: only a shell that is already waiting
    /// survives a SIGKILL.
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

    /// Waits for the command, or until `tick` breaks, which kills its process group.
    ///
    /// Calls `tick` a few times per second with the elapsed time.
    ///
    /// # Errors
    /// Fails if the command fails; with [`LabError::Interrupted`] if `tick` breaks.
    pub(super) fn wait(mut self, mut tick: impl FnMut(Duration) -> ControlFlow<()>) -> Result<(), LabError> {
        drop(self.process.stdin());
        let clock = Clock::start();
        let status = loop {
            if let Some(finished) = self.process.wait_for(WATCH_INTERVAL)? {
                break finished.status;
            }
            if tick(clock.now().since(Time::START)).is_break() {
                self.process.end_group()?;
                return Err(LabError::Interrupted);
            }
        };
        if status.success() {
            return Ok(());
        }
        Err(LabError::Shell { what: self.phase.name(), status, said: last_output_line::quote(&[&self.log]) })
    }
}
