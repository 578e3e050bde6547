//! The memory that the kernel lets all TCP sockets have together.
//!
//! Two real hosts have a `tcp_mem` each. The lab's two share this machine's, a sixteenth of its memory or
//! so: where one connection's buffers at both ends reach that, the kernel drops packets that have
//! arrived and closes windows, which no real path would do.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;

const SETTING: &str = "/proc/sys/net/ipv4/tcp_mem";
/// A send and a receive buffer of 1 GiB, with what the kernel needs besides, twice.
const NEEDED: Bytes = Bytes::gib(4);

/// Holds `tcp_mem` at what two tuned hosts need; restores it when dropped, and when this process is killed.
#[derive(Debug)]
pub(crate) struct TcpMemoryLimit {
    /// Waits for the end of its input, to restore the setting; none where nothing was changed.
    restorer: Option<Child>,
}

impl TcpMemoryLimit {
    /// Raises the limit where it is below what is needed; tells and goes on where that is not permitted.
    ///
    /// # Errors
    /// Fails where the setting cannot be read or the process that restores it not be started.
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
