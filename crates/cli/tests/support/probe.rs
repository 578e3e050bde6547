//! `longhaul probe`, its report, and an iperf3 server.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::program::{Ended, longhaul};
use super::server_process::{ServerProcess, free_port, skip};

pub(crate) fn probe(args: &[&str]) -> Ended {
    longhaul("probe").args(args).run()
}

/// Returns the object that `--json` prints.
#[track_caller]
pub(crate) fn report(ended: &Ended) -> Value {
    let [report] = &ended.json()[..] else { panic!("{ended:?}") };
    report.clone()
}

/// Returns whether a line reports the missing measurement.
pub(crate) fn misses(report: &Value, words: &str) -> bool {
    report["missing"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains(words))
}

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
