//! Measures one command from a separate small process: its time, CPU and memory, without those of the shell that starts it.
//!
//! The kernel counts the parent's memory at fork(2) in a child's maximum resident set. The process that runs the lab
//! holds the path's buffers; this process holds almost nothing.

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde_json::json;

/// Runs `command`, prints its values for the lab on a line of JSON, and returns its exit status; 255 after a signal.
///
/// # Errors
/// Fails if the command cannot be started.
pub(crate) fn run(command: &[OsString]) -> Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command was given")?;
    let started = Instant::now();
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let finished =
        longhaul_sys::process::wait(Pid::from_child(&child)).context("cannot wait for the command")?;
    let values = json!({
        "client_wall_s": started.elapsed().as_secs_f64(),
        "client_user_s": finished.user.as_secs_f64(),
        "client_sys_s": finished.system.as_secs_f64(),
        "max_rss_bytes": finished.max_resident.get(),
        "minor_faults": finished.minor_faults,
    });
    println!("{values}");
    let code = finished.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(u8::MAX)))
}
