//! Measures time, CPU and memory of one command from a separate small process.
//!
//! The kernel counts the parent's memory at fork(2) in a child's maximum resident set. The process that runs the lab
//! holds the path's buffers; this process holds almost nothing.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

/// The resources that a command used, in seconds and bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResourceUsage {
    /// The exit status in words; empty on success.
    pub(crate) failure: String,
    /// Seconds from start to end.
    pub(crate) wall_s: f64,
    /// User CPU time in seconds.
    pub(crate) user_s: f64,
    /// Kernel CPU time in seconds.
    pub(crate) sys_s: f64,
    /// Maximum resident set in bytes.
    pub(crate) max_rss_bytes: u64,
    /// Page faults without I/O.
    pub(crate) minor_faults: u64,
}

/// Runs `command` and writes its resource usage to `result` as JSON.
///
/// # Errors
/// Fails if the command cannot be started or the file cannot be written; a failed command is a result.
pub(crate) fn run(result: &Path, command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no command was given")?;
    let start = Instant::now();
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process without an id")?;
    let finished = longhaul_sys::process::wait(pid).context("cannot wait for the command")?;
    let used = ResourceUsage {
        failure: if finished.status.success() { String::new() } else { finished.status.to_string() },
        wall_s: start.elapsed().as_secs_f64(),
        user_s: finished.user.as_secs_f64(),
        sys_s: finished.system.as_secs_f64(),
        max_rss_bytes: finished.max_resident.get(),
        minor_faults: finished.minor_faults,
    };
    fs::write(result, serde_json::to_vec(&used)?)
        .with_context(|| format!("cannot write {}", result.display()))
}
