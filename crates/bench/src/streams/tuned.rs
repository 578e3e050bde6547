//! A long fat path between tuned hosts that one stream can fill: cost of more streams, and their gain during slow start.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::{self, RunSeries};

use super::{AUTO, best_fixed, times_as_fast};

const TUNED_PATH: BenchPath = BenchPath::LongCubic;
const ONE: BenchClient = BenchClient::Streams(Streams::Fixed(1));
const TUNED_CLIENTS: [BenchClient; 5] = [
    AUTO,
    ONE,
    BenchClient::Streams(Streams::Fixed(4)),
    BenchClient::Streams(Streams::Fixed(16)),
    BenchClient::Curl,
];
const RAMP_UP: [BenchClient; 2] = [AUTO, BenchClient::Curl];
const LARGE_FILE: Bytes = Bytes::gib(8);
/// Complete before the end of the ramp-up.
const SMALL_FILE: Bytes = Bytes::gib(1);

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    vec![
        BenchJob::new(TUNED_PATH, &TUNED_CLIENTS, LARGE_FILE),
        BenchJob { is_at_most: true, ..BenchJob::new(TUNED_PATH, &RAMP_UP, SMALL_FILE) },
    ]
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let large = |client| RunSeries::of_size(runs, TUNED_PATH, client, LARGE_FILE);
    let best = format!("{TUNED_PATH}: at least 0.97 of the best fixed number");
    let mut targets: Vec<_> = [
        times_as_fast(best, large(AUTO), best_fixed(runs, TUNED_PATH, &TUNED_CLIENTS), 0.97),
        times_as_fast(format!("{TUNED_PATH}: at least as fast as one stream"), large(AUTO), large(ONE), 1.0),
    ]
    .into_iter()
    .flatten()
    .collect();
    for (size, most) in [(SMALL_FILE, 0.8), (LARGE_FILE, 0.9)] {
        let [ours, curl] = RAMP_UP.map(|client| RunSeries::of_size(runs, TUNED_PATH, client, size));
        if let Some((ours, curl)) = ours.zip(curl) {
            let asked = format!("{TUNED_PATH}: {size} in at most {most}x curl's time");
            let ratio = ours.time() / curl.time();
            targets.push(Goal::new(asked, format!("{ratio:.3}x"), ratio <= most));
        }
    }
    targets
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut sizes: Vec<_> = runs.iter().map(|run| run.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut text = String::new();
    for size in sizes.into_iter().rev().map(Bytes::new) {
        let table = run_series::table_of_size(runs, TUNED_PATH, &TUNED_CLIENTS, size);
        let _ = writeln!(text, "## {TUNED_PATH}, tuned hosts, {size}, by the number of streams\n\n{table}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_fixed_number_one_stream_and_curl_are_compared_with() {
        let run = |client, bytes, wall_s| BenchRun::timed(TUNED_PATH, client, bytes, wall_s);
        let runs = [
            run(AUTO, LARGE_FILE, 9.0),
            run(ONE, LARGE_FILE, 8.9),
            run(TUNED_CLIENTS[2], LARGE_FILE, 8.5),
            run(TUNED_CLIENTS[3], LARGE_FILE, 12.0),
            run(BenchClient::Curl, LARGE_FILE, 10.0),
            run(AUTO, SMALL_FILE, 3.3),
            run(BenchClient::Curl, SMALL_FILE, 4.1),
        ];
        let runs: Vec<_> = runs.iter().collect();
        let measured = Goal::measured(&targets(&runs));
        assert_eq!(measured, ["0.944x **no**", "0.989x **no**", "0.805x **no**", "0.900x yes"]);
        let section = section(&runs);
        let headings: Vec<_> = section.lines().filter(|line| line.starts_with("##")).collect();
        assert!(matches!(headings[..], [large, small] if large.contains("8 GiB") && small.contains("1 GiB")));
        assert!(targets(&[]).is_empty() && super::section(&[]).is_empty());
    }
}
