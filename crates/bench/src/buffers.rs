//! Compares methods of receiving and writing with one stream: the table of docs/measurements.md#writers.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::BenchClient;
use crate::experiments::Experiment;
use crate::paths::BenchPath;
use crate::run_series;

const BUFFER_PATHS: [BenchPath; 2] = [BenchPath::NoDelay, BenchPath::LongCubic];
const BUFFER_CLIENTS: [BenchClient; 5] = [
    BenchClient::Writer("direct"),
    BenchClient::Writer("mmap"),
    BenchClient::Writer("buffered"),
    BenchClient::Experiment(Experiment::Mapped),
    BenchClient::Experiment(Experiment::Splice),
];

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    BUFFER_PATHS.map(|path| BenchJob::new(path, &BUFFER_CLIENTS, Bytes::gib(8))).into()
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut text = String::new();
    for path in BUFFER_PATHS {
        let table = run_series::table(runs, path, &BUFFER_CLIENTS);
        if !table.is_empty() {
            let _ = writeln!(text, "## Ways of writing: {path}\n\n{table}");
        }
    }
    text
}
