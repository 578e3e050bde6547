//! 1,000 small files over a long RTT, against aria2: round trips dominate, not bandwidth.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::BenchClient;
use crate::markdown_table;
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::RunSeries;

const SMALL_FILES_PATH: BenchPath = BenchPath::Far;
const SMALL_FILES_CLIENTS: [BenchClient; 2] = [BenchClient::GetEach, BenchClient::Aria2List];
const SMALL_FILES: usize = 1000;
const SMALL_FILE_SIZE: Bytes = Bytes::new(100_000);

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    vec![BenchJob {
        files: SMALL_FILES,
        is_at_most: true,
        ..BenchJob::new(SMALL_FILES_PATH, &SMALL_FILES_CLIENTS, SMALL_FILE_SIZE)
    }]
}

/// Returns the goal, and whether the runs met it.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let [Some(ours), Some(aria2)] =
        SMALL_FILES_CLIENTS.map(|client| RunSeries::of(runs, SMALL_FILES_PATH, client))
    else {
        return Vec::new();
    };
    let ratio = ours.time() / aria2.time();
    let asked =
        format!("{SMALL_FILES_PATH}, {SMALL_FILES} files: at most the time of {}", BenchClient::Aria2List);
    vec![Goal::new(asked, format!("{ratio:.3}x"), ratio <= 1.0)]
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let row = |client: BenchClient| {
        let series = RunSeries::of(runs, SMALL_FILES_PATH, client)?;
        let seconds =
            |of: fn(&BenchRun) -> f64| markdown_table::spread(series.figure(|run| Some(of(run))), 2);
        Some(vec![
            client.to_string(),
            seconds(|run| run.wall_s),
            seconds(|run| run.wall_s + run.flush_s),
            seconds(|run| run.user_s + run.sys_s),
            series.largest_resident().to_string(),
            series.counted(),
        ])
    };
    let rows: Vec<_> = SMALL_FILES_CLIENTS.into_iter().filter_map(row).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        let table = markdown_table::markdown(&SMALL_FILES_COLUMNS, &rows);
        let _ = writeln!(
            text,
            "## {SMALL_FILES_PATH}, {SMALL_FILES} files of {} bytes, tuned hosts, to disk\n\n{table}",
            SMALL_FILE_SIZE.get()
        );
    }
    text
}

const SMALL_FILES_COLUMNS: [&str; 6] = [
    "client",
    "time, s: median (least to largest)",
    "until all are on the disk",
    "CPU, s",
    "largest RSS",
    "runs (marked)",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_all_files_is_compared() {
        let run = |client, wall_s| BenchRun::timed(SMALL_FILES_PATH, client, SMALL_FILE_SIZE, wall_s);
        let runs = [run(SMALL_FILES_CLIENTS[0], 6.0), run(SMALL_FILES_CLIENTS[1], 8.0)];
        let runs: Vec<_> = runs.iter().collect();
        assert_eq!(Goal::measured(&targets(&runs)), ["0.750x yes"]);
        assert!(section(&runs).contains("| aria2 -j16 -i LIST | 8.00 | 8.00 |"), "{}", section(&runs));
        assert!(targets(&runs[1..]).is_empty() && section(&[]).is_empty());
    }
}
