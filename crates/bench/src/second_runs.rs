//! The second run of default commands, with the path memory of the first: what is remembered must not make it slower.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::{self, RunSeries};

const GET: BenchClient = BenchClient::Streams(Streams::Auto);
const GRID_FTP: BenchClient = BenchClient::GridFtp(Streams::Auto);
const FILES: usize = 1000;
/// The largest time of the second run over that of the first.
const MOST: f64 = 1.05;

/// Per row: path, client, file size, and number of files.
const ROWS: [(BenchPath, &BenchClient, Bytes, usize); 12] = [
    (BenchPath::LongCubic, &GET, Bytes::gib(8), 1),
    (BenchPath::LongBbr, &GET, Bytes::gib(8), 1),
    (BenchPath::LongStock, &GET, Bytes::gib(8), 1),
    (BenchPath::FarStock, &GET, Bytes::gib(2), 1),
    (BenchPath::SwitchCubic, &GET, Bytes::gib(2), 1),
    (BenchPath::NoDelay, &GET, Bytes::gib(8), 1),
    (BenchPath::LongCubic, &BenchClient::GetFromServe, Bytes::gib(8), 1),
    (BenchPath::SwitchCubic, &BenchClient::GetFromServe, Bytes::gib(2), 1),
    (BenchPath::LongCubic, &BenchClient::PutDefault, Bytes::gib(8), 1),
    (BenchPath::SwitchCubic, &BenchClient::PutDefault, Bytes::gib(2), 1),
    (BenchPath::FarStock, &GRID_FTP, Bytes::gib(2), 1),
    (BenchPath::Far, &BenchClient::GetEach, Bytes::new(100_000), FILES),
];

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    let job = |(path, client, size, files): (BenchPath, &'static BenchClient, Bytes, usize)| BenchJob {
        files,
        is_at_most: true,
        ..BenchJob::new(path, &[*client, BenchClient::Again(client)], size)
    };
    ROWS.into_iter().map(job).collect()
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let goal = |(path, client, ..): &(BenchPath, &'static BenchClient, Bytes, usize)| {
        let [first, second] =
            [**client, BenchClient::Again(client)].map(|client| RunSeries::of(runs, *path, client));
        let ratio = second?.time() / first?.time();
        let asked = format!("{path}: {client}, the second run at most {MOST}x the first");
        Some(Goal::new(asked, format!("{ratio:.3}x"), ratio <= MOST))
    };
    ROWS.iter().filter_map(goal).collect()
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut text = String::new();
    for (path, client, ..) in ROWS {
        let table = run_series::table(runs, path, &[*client, BenchClient::Again(client)]);
        if !table.is_empty() {
            let _ = writeln!(text, "## {path}: {client}, first and second run\n\n{table}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_run_is_held_to_its_first() {
        let timed = |client, wall_s| BenchRun::timed(BenchPath::LongCubic, client, Bytes::gib(8), wall_s);
        let runs =
            [timed(GET, 10.0), timed(BenchClient::Again(&GET), 11.0), timed(BenchClient::GetFromServe, 9.0)];
        let runs: Vec<_> = runs.iter().collect();
        assert_eq!(Goal::measured(&targets(&runs)), ["1.100x **no**"]);
        assert!(section(&runs).contains("| longhaul, again |") && section(&[]).is_empty());
    }
}
