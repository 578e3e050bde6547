//! The command that serves an experiment from the server host.

use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::LabError;
use crate::model::Time;

use super::{Host, Process};

/// What was wrong with the end of a server command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEnd {
    /// It failed before it was to end.
    #[error("ended early: {0}")]
    Early(ExitStatus),
    /// It went on after SIGTERM.
    #[error("was killed, as it did not end at SIGTERM; its record may lack the end")]
    Killed,
}

/// A shell command in the background of a host; ended with [`end`](Self::end), killed when dropped.
#[derive(Debug)]
pub struct ServerCommand {
    process: Process,
    host: Host,
}

impl ServerCommand {
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
    /// `tick` is called a few times a second with how long it waits already.
    ///
    /// # Errors
    /// Fails where the command ends before, or the time is over, and with [`LabError::Interrupted`] where
    /// `tick` breaks.
    pub fn wait_until_listening(
        &mut self,
        port: u16,
        mut tick: impl FnMut(Duration) -> ControlFlow<()>,
    ) -> Result<(), LabError> {
        const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
        const POLL_INTERVAL: Duration = Duration::from_millis(5);
        const STEPS_A_TICK: u32 = 10;
        let failed = |why| Err(LabError::NotListening { port, why });
        let clock = Clock::start();
        let mut step = 0;
        while !self.host.listens_on(port)? {
            let elapsed = clock.now().since(Time::START);
            if step % STEPS_A_TICK == 0 && tick(elapsed).is_break() {
                return Err(LabError::Interrupted);
            }
            step += 1;
            if let Some(finished) = self.process.wait_for(POLL_INTERVAL)? {
                return failed(format!("the server command ended: {}", finished.status));
            }
            if elapsed > LISTEN_TIMEOUT {
                return failed(format!("the server command runs, but {LISTEN_TIMEOUT:?} are over"));
            }
        }
        Ok(())
    }

    /// Ends it: SIGTERM to its group, and SIGKILL after five seconds.
    ///
    /// Returns what was wrong with its end.
    ///
    /// # Errors
    /// Fails where it cannot be signalled or waited for.
    pub fn end(mut self) -> Result<Option<BadEnd>, LabError> {
        const KILL_DELAY: Duration = Duration::from_secs(5);
        if let Some(finished) = self.process.wait_for(Duration::ZERO)? {
            return Ok(Some(finished.status).filter(|status| !status.success()).map(BadEnd::Early));
        }
        self.process.terminate_group()?;
        Ok(self.process.wait_for(KILL_DELAY)?.is_none().then_some(BadEnd::Killed))
    }
}
