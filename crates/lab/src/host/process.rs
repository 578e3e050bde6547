//! A command that runs on a host.

use std::io;
use std::ops::ControlFlow;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::process::{Finished, wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::clock::Clock;
use crate::error::LabError;
use crate::model::Time;

use super::HostsInner;

/// Time between SIGTERM and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(1);

/// Interval at which a watched command checks for a stop request.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// The end of a watched command.
pub(crate) struct FinishedCommand {
    pub(crate) finished: Finished,
    pub(crate) wall: Duration,
    pub(crate) timed_out: bool,
}

/// A command that runs on a host of a lab, which it keeps alive, or on this machine; killed on
/// drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
    finished: Option<Finished>,
    /// Declared last: the lab must not wait for a child that only this struct can reap.
    _lab: Option<Arc<HostsInner>>,
}

impl Process {
    pub(crate) fn new(child: Child, lab: Option<Arc<HostsInner>>) -> Self {
        Self { pid: Pid::from_child(&child), child, finished: None, _lab: lab }
    }

    /// Takes the pipe to standard input, if it was requested.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the pipe from standard output, if it was requested.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the pipe from standard error, if it was requested.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Returns the process id outside the lab's PID namespace.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process; returns its exit status and resource usage.
    ///
    /// # Errors
    /// Fails if the process was already reaped.
    pub fn wait(&mut self) -> Result<Finished, LabError> {
        match self.finished {
            Some(finished) => Ok(finished),
            None => {
                let finished = wait(self.pid).map_err(|cause| self.failed("wait for", cause))?;
                Ok(*self.finished.insert(finished))
            }
        }
    }

    /// Waits for at most `limit`, or until a signal arrives; `None` if the process is still
    /// running.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<Finished>, LabError> {
        if self.finished.is_none() && !ends_within(self.pid, limit).map_err(|e| self.failed("wait for", e))? {
            return Ok(None);
        }
        self.wait().map(Some)
    }

    /// Waits for the process, which leads a process group; ends the group `timeout` after the start
    /// of `clock`.
    ///
    /// Calls `tick` a few times per second with the elapsed time.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); with [`LabError::Interrupted`], after the end of the group, if
    /// `tick` breaks.
    pub(crate) fn watch(
        mut self,
        clock: Clock,
        timeout: Option<Duration>,
        mut tick: impl FnMut(Duration) -> ControlFlow<()>,
    ) -> Result<FinishedCommand, LabError> {
        let wall = || clock.now().since(Time::START);
        loop {
            let left =
                timeout.map_or(WATCH_INTERVAL, |timeout| timeout.saturating_sub(wall()).min(WATCH_INTERVAL));
            if let Some(finished) = self.wait_for(left)? {
                return Ok(FinishedCommand { finished, wall: wall(), timed_out: false });
            }
            if tick(wall()).is_break() {
                self.end_group()?;
                return Err(LabError::Interrupted);
            }
            if timeout.is_some_and(|timeout| wall() >= timeout) {
                return Ok(FinishedCommand { finished: self.end_group()?, wall: wall(), timed_out: true });
            }
        }
    }

    /// Sends a signal to the process, unless it was reaped.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), LabError> {
        if self.finished.is_some() {
            return Ok(());
        }
        let sent = rustix::process::kill_process(self.pid, signal);
        sent.map_err(|errno| self.failed("signal", errno.into()))
    }

    /// Sends SIGTERM to the process group that the process leads (`CommandExt::process_group(0)`).
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn terminate_group(&self) -> Result<(), LabError> {
        if self.finished.is_some() {
            return Ok(());
        }
        let sent = rustix::process::kill_process_group(self.pid, Signal::TERM);
        sent.map_err(|errno| self.failed("terminate the group of", errno.into()))
    }

    /// Ends the process group that the process leads: SIGTERM, then SIGKILL to the rest of it after
    /// the end of the process or one second.
    pub(crate) fn end_group(&mut self) -> Result<Finished, LabError> {
        if self.finished.is_none() {
            // Each step runs even if an earlier one fails. The process is reaped last: until then
            // its number is the group's.
            let _ = self.terminate_group();
            let _ = ends_within(self.pid, KILL_DELAY);
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        self.wait()
    }

    fn failed(&self, what: &'static str, cause: io::Error) -> LabError {
        LabError::host(format!("{what} process {}", self.pid.as_raw_nonzero()))(cause)
    }
}

/// Returns whether a child ends within `limit`; returns false early on a signal, which the caller
/// must handle.
fn ends_within(child: Pid, limit: Duration) -> io::Result<bool> {
    let handle = rustix::process::pidfd_open(child, PidfdFlags::empty())?;
    let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut on = [PollFd::new(&handle, PollFlags::IN)];
    match rustix::event::poll(&mut on, Some(&limit)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.finished.is_none() {
            let _ = self.signal(Signal::KILL);
            let _ = self.wait();
        }
    }
}
