//! Runs a scenario's set-up and clean-up commands on the machine.

use std::fs::OpenOptions;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::clock::Clock;
use crate::error::LabError;
use crate::host::ends_within;
use crate::model::Time;

use super::environment::Environment;
use super::last_output_line;
use super::results_directory::OUT_OPTION;
use super::runner::ExecutionPhase;

/// Interval at which a running command checks for a stop request.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Time between SIGTERM and SIGKILL.
pub(super) const KILL_DELAY: Duration = Duration::from_secs(1);

/// A shell command on this machine; its output is appended to a file.
pub(super) struct Shell {
    phase: ExecutionPhase,
    child: Child,
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
        let child = shell.spawn().map_err(failed)?;
        Ok(Self { phase, child, log: log.to_owned() })
    }

    /// Waits for the command, or until `tick` breaks, which kills its process group.
    ///
    /// Calls `tick` a few times per second with the elapsed time.
    ///
    /// # Errors
    /// Fails if the command fails; with [`LabError::Interrupted`] if `tick` breaks.
    pub(super) fn wait(mut self, mut tick: impl FnMut(Duration) -> ControlFlow<()>) -> Result<(), LabError> {
        drop(self.child.stdin.take());
        let clock = Clock::start();
        loop {
            match ends_within(self.pid(), WATCH_INTERVAL) {
                Ok(true) => break,
                Ok(false) if tick(clock.now().since(Time::START)).is_continue() => {}
                Ok(false) => {
                    self.end();
                    return Err(LabError::Interrupted);
                }
                Err(cause) => {
                    self.end();
                    return Err(failed(cause));
                }
            }
        }
        let status = self.child.wait().map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        Err(LabError::Shell { what: self.phase.name(), status, said: last_output_line::quote(&[&self.log]) })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends SIGTERM to the group, and SIGKILL to the rest of it after the command's end or one second.
    fn end(&mut self) {
        let group = self.pid();
        // Each step runs even if an earlier one fails.
        let _ = kill_process_group(group, Signal::TERM);
        let _ = ends_within(group, KILL_DELAY);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

fn failed(cause: io::Error) -> LabError {
    LabError::host("run sh on this machine")(cause)
}
