//! The command that serves an experiment from the far host.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::error::LabError;

use super::{Host, Process};

/// A shell command in the background of a host; ended with [`end`](Self::end), killed when dropped.
#[derive(Debug)]
pub struct FarCommand(Process);

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
        host.spawn(shell).map(Self)
    }

    /// Ends it: SIGTERM to its group, and SIGKILL after a second.
    ///
    /// Returns its exit status where it had failed before that.
    ///
    /// # Errors
    /// Fails where it cannot be signalled or waited for.
    pub fn end(mut self) -> Result<Option<ExitStatus>, LabError> {
        const GRACE: Duration = Duration::from_secs(1);
        if let Some(finished) = self.0.wait_for(Duration::ZERO)? {
            return Ok(Some(finished.status).filter(|status| !status.success()));
        }
        self.0.terminate_group()?;
        self.0.wait_for(GRACE)?;
        Ok(None)
    }
}
