//! A command that runs on a host.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::process::{Finished, wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::LabError;

use super::HostsInner;

/// Time between SIGTERM and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(1);

/// A command that runs on a host of a lab, which it keeps alive, or on this machine; killed on drop.
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

    /// Waits for at most `limit`, or until a signal arrives; `None` if the process is still running.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<Finished>, LabError> {
        if self.finished.is_none() && !ends_within(self.pid, limit).map_err(|e| self.failed("wait for", e))? {
            return Ok(None);
        }
        self.wait().map(Some)
    }

    /// Sends SIGTERM to the process.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn terminate(&self) -> Result<(), LabError> {
        self.signal(Signal::TERM, "terminate")
    }

    /// Sends SIGINT to the process.
    ///
    /// # Errors
    /// As [`terminate`](Self::terminate).
    pub fn interrupt(&self) -> Result<(), LabError> {
        self.signal(Signal::INT, "interrupt")
    }

    /// Sends SIGKILL to the process.
    ///
    /// # Errors
    /// As [`terminate`](Self::terminate).
    pub fn kill(&self) -> Result<(), LabError> {
        self.signal(Signal::KILL, "kill")
    }

    /// Sends SIGTERM to the process group that the process leads (`CommandExt::process_group(0)`).
    ///
    /// # Errors
    /// As [`terminate`](Self::terminate).
    pub fn terminate_group(&self) -> Result<(), LabError> {
        if self.finished.is_some() {
            return Ok(());
        }
        let sent = rustix::process::kill_process_group(self.pid, Signal::TERM);
        sent.map_err(|errno| self.failed("terminate the group of", errno.into()))
    }

    /// Ends the process group that the process leads: SIGTERM, then SIGKILL to the rest of it after the end of the
    /// process or one second.
    pub(crate) fn end_group(&mut self) -> Result<Finished, LabError> {
        if self.finished.is_none() {
            // Each step runs even if an earlier one fails. The process is reaped last: until then its number is the group's.
            let _ = self.terminate_group();
            let _ = ends_within(self.pid, KILL_DELAY);
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        self.wait()
    }

    fn signal(&self, signal: Signal, what: &'static str) -> Result<(), LabError> {
        if self.finished.is_some() {
            return Ok(());
        }
        rustix::process::kill_process(self.pid, signal).map_err(|errno| self.failed(what, errno.into()))
    }

    fn failed(&self, what: &'static str, cause: io::Error) -> LabError {
        LabError::host(format!("{what} process {}", self.pid.as_raw_nonzero()))(cause)
    }
}

/// Returns whether a child ends within `limit`; returns false early on a signal, which the caller must handle.
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
            let _ = self.kill();
            let _ = self.wait();
        }
    }
}
