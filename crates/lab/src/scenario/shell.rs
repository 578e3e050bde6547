//! A scenario's commands on the machine itself, around what is measured.

use std::fs::OpenOptions;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::LabError;
use crate::host::ends_within;

use super::environment::Environment;

/// How often a running command looks whether it is to stop.
pub(super) const TICK: Duration = Duration::from_millis(200);

/// How long a command has to end when it is asked to.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Runs `command` with `sh -c` until it ends, or `tick` breaks: then it is ended, with what it started.
///
/// What it says is added to `log`; `what` names it in errors.
///
/// # Errors
/// Fails where it cannot be started, fails itself, or was interrupted.
pub(super) fn run(
    what: &'static str,
    command: &str,
    environment: &Environment,
    log: &Path,
    mut tick: impl FnMut() -> ControlFlow<()>,
) -> Result<(), LabError> {
    let failed = |cause: io::Error| LabError::Start { what: "run sh on this machine", cause };
    let mut child = start(command, environment, log)?;
    let pid = Pid::from_child(&child);
    while !ends_within(pid, TICK).map_err(failed)? {
        if tick().is_break() {
            end(pid, &mut child).map_err(failed)?;
            return Err(LabError::Interrupted);
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(LabError::Shell { what, status, log: log.to_owned() }) }
}

fn start(command: &str, environment: &Environment, log: &Path) -> Result<Child, LabError> {
    let cannot_create = |cause: io::Error| LabError::Create { path: log.to_owned(), cause };
    let out = OpenOptions::new().create(true).append(true).open(log).map_err(cannot_create)?;
    let errors = out.try_clone().map_err(cannot_create)?;
    let mut shell = Command::new("sh");
    environment.give(&mut shell);
    // A group of its own, so that the terminal's Ctrl-C does not reach it.
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
    shell.spawn().map_err(|cause| LabError::Start { what: "run sh on this machine", cause })
}

fn end(group: Pid, leader: &mut Child) -> io::Result<ExitStatus> {
    kill_process_group(group, Signal::TERM)?;
    if !ends_within(group, GRACE)? {
        kill_process_group(group, Signal::KILL)?;
    }
    leader.wait()
}
