//! An iperf3 server.

use std::process::{Command, Stdio};

use super::server_process::{ServerProcess, free_port};
use super::skip::skip;

/// `iperf3 -s`; killed on drop.
pub(crate) struct Iperf3 {
    _server: ServerProcess,
    port: u16,
}

impl Iperf3 {
    /// Starts the server; `None` if it cannot run, which is a failure under CI.
    pub(crate) fn start() -> Option<Self> {
        if let Err(error) = Command::new("iperf3").arg("--version").stdout(Stdio::null()).status() {
            skip(&format!("iperf3 cannot be run: {error}"));
            return None;
        }
        let port = free_port();
        let mut command = Command::new("iperf3");
        command.args(["-s", "-p", &port.to_string()]);
        Some(Self { _server: ServerProcess::listening(command, port), port })
    }

    pub(crate) fn url(&self) -> String {
        format!("iperf3://127.0.0.1:{}", self.port)
    }
}
