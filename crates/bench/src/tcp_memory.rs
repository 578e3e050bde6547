//! The kernel's memory limit for all TCP sockets.
//!
//! Two real hosts have a `tcp_mem` each. The lab's hosts share this machine's, about a sixteenth of its memory: if the
//! buffers of both endpoints of one connection reach it, the kernel drops received packets and closes windows, which no
//! real path does.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;

const SETTING: &str = "/proc/sys/net/ipv4/tcp_mem";
/// A send and a receive buffer of 1 GiB with overhead, for two connections.
const NEEDED: Bytes = Bytes::gib(4);

/// Raises `tcp_mem` to the need of two tuned hosts; restores it on drop, and if this process is killed.
#[derive(Debug)]
pub(crate) struct TcpMemoryLimit {
    /// A process that restores the setting at the end of its input; `None` if nothing was changed.
    restorer: Option<Child>,
}

impl TcpMemoryLimit {
    /// Raises the limit if it is too low; warns if that is not permitted.
    ///
    /// # Errors
    /// Fails if the setting is unreadable or the restoring process cannot be started.
    pub(crate) fn raise() -> Result<Self> {
        let before = fs::read_to_string(SETTING).with_context(|| format!("cannot read {SETTING}"))?;
        let needed = NEEDED.get() / rustix::param::page_size() as u64;
        let pressure = before.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        if pressure.is_some_and(|pages| pages >= needed) {
            return Ok(Self { restorer: None });
        }
        let restorer = Command::new("sh")
            .args([
                "-c",
                "trap '' HUP INT TERM; read -r _; printf %s \"$1\" >\"$2\"",
                "sh",
                before.trim(),
                SETTING,
            ])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let raised = Self { restorer: Some(restorer) };
        let value = format!("{needed} {needed} {}", needed * 2);
        match fs::write(SETTING, &value) {
            Ok(()) => eprintln!("bench: net.ipv4.tcp_mem is '{value}' until the end: both hosts share it"),
            Err(error) => {
                eprintln!("bench: net.ipv4.tcp_mem stays as it is: {error}; runs that it hampers are marked")
            }
        }
        Ok(raised)
    }
}

impl Drop for TcpMemoryLimit {
    fn drop(&mut self) {
        if let Some(restorer) = &mut self.restorer {
            if let Some(mut input) = restorer.stdin.take() {
                let _ = input.write_all(b"\n");
            }
            let _ = restorer.wait();
        }
    }
}
