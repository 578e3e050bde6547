//! The ways of receiving and writing of one stream, next to each other: the table of docs/buffers.md.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::experiments::Experiment;
use crate::job::Job;
use crate::paths::BenchPath;
use crate::peers::Client;
use crate::run::Run;
use crate::series;

const PATHS: [BenchPath; 2] = [BenchPath::NoDelay, BenchPath::LongCubic];
const CLIENTS: [Client; 5] = [
    Client::Writer("direct"),
    Client::Writer("mmap"),
    Client::Writer("buffered"),
    Client::Experiment(Experiment::Mapped),
    Client::Experiment(Experiment::Splice),
];

/// Returns what is run.
pub(crate) fn jobs() -> Vec<Job> {
    PATHS.map(|path| Job::new(path, &CLIENTS, Bytes::gib(8))).into()
}

/// Returns the section of the report; empty where nothing was run.
pub(crate) fn section(runs: &[&Run]) -> String {
    let mut text = String::new();
    for path in PATHS {
        let table = series::table(runs, path, &CLIENTS);
        if !table.is_empty() {
            let _ = writeln!(text, "## Ways of writing: {path}\n\n{table}");
        }
    }
    text
}
