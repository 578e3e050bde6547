//! The server command of an experiment, on the server host.

use std::ops::ControlFlow;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::LabError;
use crate::model::Time;

use super::{Host, Process};

/// How a server command ended wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerCommandFailure {
    /// It exited before it was stopped.
    #[error("ended early: {0}")]
    Early(ExitStatus),
    /// It had to be killed: it ignored SIGTERM.
    #[error("was killed, as it did not end at SIGTERM; its record may lack the end")]
    Killed,
}

/// A shell command in the background of a host; stopped by [`end`](Self::end), killed on drop.
#[derive(Debug)]
pub struct ServerCommand {
    process: Process,
    host: Host,
}

impl ServerCommand {
    /// Starts `command` with `sh -c`; `prepare` sets its output.
    ///
    /// # Errors
    /// Fails if there is no `sh`, or if `prepare` fails.
    pub fn start(
        host: &Host,
        command: &str,
        prepare: impl FnOnce(&mut Command) -> Result<(), LabError>,
    ) -> Result<Self, LabError> {
        let mut shell = host.shell(command);
        prepare(&mut shell)?;
        Ok(Self { process: host.spawn(shell)?, host: host.clone() })
    }

    /// Waits up to ten seconds until the host listens on TCP `port`.
    ///
    /// Calls `tick` a few times per second with the elapsed time.
    ///
    /// # Errors
    /// Fails if the command ends or the time runs out; with [`LabError::Interrupted`] if `tick`
    /// breaks.
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

    /// Stops the command: SIGTERM to its group, SIGKILL after five seconds.
    ///
    /// Returns how it ended wrongly, if it did.
    ///
    /// # Errors
    /// Fails if the command cannot be signalled or awaited.
    pub fn end(mut self) -> Result<Option<ServerCommandFailure>, LabError> {
        const SERVER_KILL_DELAY: Duration = Duration::from_secs(5);
        if let Some(finished) = self.process.wait_for(Duration::ZERO)? {
            return Ok(Some(finished.status)
                .filter(|status| !status.success())
                .map(ServerCommandFailure::Early));
        }
        self.process.terminate_group()?;
        Ok(self.process.wait_for(SERVER_KILL_DELAY)?.is_none().then_some(ServerCommandFailure::Killed))
    }
}
