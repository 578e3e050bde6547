//! The command that serves an experiment from the far host.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::LabError;
use crate::model::Time;

use super::{Host, Process};

/// A shell command in the background of a host; ended with [`end`](Self::end), killed when dropped.
#[derive(Debug)]
pub struct FarCommand {
    process: Process,
    host: Host,
}

impl FarCommand {
    /// Starts `command` with `sh -c`, after `prepare` has chosen where its output goes.
    ///
    /// It has a process group of its own, so that the terminal's Ctrl-C does not reach it, and no input.
    ///
    /// # Errors
    /// Fails where there is no `sh`, or `prepare` does.
    pub fn start(
        host: &Host,
        command: &str,
        prepare: impl FnOnce(&mut Command) -> Result<(), LabError>,
    ) -> Result<Self, LabError> {
        let mut shell = host.command("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).process_group(0);
        prepare(&mut shell)?;
        Ok(Self { process: host.spawn(shell)?, host: host.clone() })
    }

    /// Waits until the host listens on TCP `port`, for ten seconds at most.
    ///
    /// # Errors
    /// Fails where the command ends before, or the time is over.
    pub fn wait_until_listening(&mut self, port: u16) -> Result<(), LabError> {
        const LIMIT: Duration = Duration::from_secs(10);
        const STEP: Duration = Duration::from_millis(5);
        let failed = |why| Err(LabError::NotListening { port, why });
        let clock = Clock::start();
        while !self.host.listens_on(port)? {
            if let Some(finished) = self.process.wait_for(STEP)? {
                return failed(format!("the far command ended: {}", finished.status));
            }
            if clock.now().since(Time::START) > LIMIT {
                return failed(format!("the far command runs, but {LIMIT:?} are over"));
            }
        }
        Ok(())
    }

    /// Ends it: SIGTERM to its group, and SIGKILL after a second.
    ///
    /// Returns its exit status where it had failed before that.
    ///
    /// # Errors
    /// Fails where it cannot be signalled or waited for.
    pub fn end(mut self) -> Result<Option<ExitStatus>, LabError> {
        const GRACE: Duration = Duration::from_secs(1);
        if let Some(finished) = self.process.wait_for(Duration::ZERO)? {
            return Ok(Some(finished.status).filter(|status| !status.success()));
        }
        self.process.terminate_group()?;
        self.process.wait_for(GRACE)?;
        Ok(None)
    }
}
