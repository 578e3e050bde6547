//! Measures the memory of one command from a separate small process.
//!
//! The kernel counts the parent's memory at fork(2) in a child's maximum resident set. The process that runs the lab
//! holds the path's buffers; this process holds almost nothing.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde_json::json;

/// Runs `command`, prints its values for the lab on a line of JSON, and returns its exit status; 255 after a signal.
///
/// # Errors
/// Fails if the command cannot be started.
pub(crate) fn run(command: &[OsString]) -> Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command was given")?;
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let finished =
        longhaul_sys::process::wait(Pid::from_child(&child)).context("cannot wait for the command")?;
    let (max_rss_bytes, minor_faults) = (finished.max_resident.get(), finished.minor_faults);
    println!("{}", json!({ "max_rss_bytes": max_rss_bytes, "minor_faults": minor_faults }));
    let code = finished.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(u8::MAX)))
}
