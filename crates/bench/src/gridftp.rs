//! GridFTP from the Globus server, against globus-url-copy and against HTTP from nginx.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::{self, RunSeries};

/// Longhaul with default options.
const OURS: BenchClient = BenchClient::GridFtp(Streams::Auto);
const OURS_EACH: BenchClient = BenchClient::GridFtpEach;
const HTTP: BenchClient = BenchClient::Streams(Streams::Auto);
/// globus-url-copy with usual numbers of streams.
const FAR_PEERS: [BenchClient; 3] =
    [BenchClient::UrlCopy(1), BenchClient::UrlCopy(4), BenchClient::UrlCopy(16)];
const NEAR_PEER: BenchClient = BenchClient::UrlCopy(2);
const FILES_PEER: BenchClient = BenchClient::UrlCopyList;
const FILES: usize = 1000;

/// Per comparison: path, clients, file size, and number of files.
fn comparisons() -> [(BenchPath, Vec<BenchClient>, Bytes, usize); 4] {
    let far = [&[OURS], &FAR_PEERS[..]].concat();
    [
        (BenchPath::FarStock, far, Bytes::gib(2), 1),
        (BenchPath::LongCubic, vec![OURS, HTTP], Bytes::gib(8), 1),
        (BenchPath::NoDelay, vec![OURS, NEAR_PEER], Bytes::gib(4), 1),
        (BenchPath::Far, vec![OURS_EACH, FILES_PEER], Bytes::new(1_000_000), FILES),
    ]
}

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    let job = |(path, clients, size, files): (BenchPath, Vec<BenchClient>, Bytes, usize)| BenchJob {
        files,
        is_at_most: files > 1,
        ..BenchJob::new(path, &clients, size)
    };
    comparisons().into_iter().map(job).collect()
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let speed = |path, client| Some(RunSeries::of(runs, path, client)?.goodput().as_bits_per_sec() as f64);
    let goal = |asked: String, ours: Option<f64>, theirs: Option<f64>, met: fn(f64) -> bool| {
        let ratio = ours? / theirs?;
        Some(Goal::new(asked, format!("{ratio:.3}x"), met(ratio)))
    };
    let best =
        FAR_PEERS.into_iter().filter_map(|peer| speed(BenchPath::FarStock, peer)).max_by(f64::total_cmp);
    let cpu = |client| Some(RunSeries::of(runs, BenchPath::NoDelay, client)?.cpu_per_gib());
    let (stock, long, near, far) =
        (BenchPath::FarStock, BenchPath::LongCubic, BenchPath::NoDelay, BenchPath::Far);
    let goals = [
        goal(
            format!("{stock}: ahead of the best globus-url-copy -p 1, 4, 16"),
            speed(stock, OURS),
            best,
            |ratio| ratio > 1.0,
        ),
        goal(
            format!("{long}: at least 0.95 of longhaul over HTTP"),
            speed(long, OURS),
            speed(long, HTTP),
            |ratio| ratio >= 0.95,
        ),
        goal(
            format!("{near}: at least 0.9 of {NEAR_PEER}"),
            speed(near, OURS),
            speed(near, NEAR_PEER),
            |ratio| ratio >= 0.9,
        ),
        goal(format!("{near}: less CPU than {NEAR_PEER}"), cpu(OURS), cpu(NEAR_PEER), |ratio| ratio < 1.0),
        goal(
            format!("{far}, {FILES} files: at least the speed of {FILES_PEER}"),
            speed(far, OURS_EACH),
            speed(far, FILES_PEER),
            |ratio| ratio >= 1.0,
        ),
    ];
    goals.into_iter().flatten().collect()
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut text = String::new();
    for (path, clients, size, files) in comparisons() {
        let table = run_series::table(runs, path, &clients);
        if !table.is_empty() {
            let what = if files > 1 { format!("{files} files of {size}") } else { "one file".to_owned() };
            let _ = writeln!(text, "## {path}: GridFTP from Globus, {what}, to disk\n\n{table}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_compared_with_the_best_of_the_peers() {
        let timed = |path, client, wall_s| BenchRun::timed(path, client, Bytes::gib(1), wall_s);
        let run = |path, client, wall_s, user_s| BenchRun { user_s, ..timed(path, client, wall_s) };
        let (stock, near) = (BenchPath::FarStock, BenchPath::NoDelay);
        let runs = [
            run(stock, OURS, 10.0, 1.0),
            run(stock, FAR_PEERS[0], 40.0, 1.0),
            run(stock, FAR_PEERS[2], 9.0, 1.0),
            run(near, OURS, 1.0, 0.5),
            run(near, NEAR_PEER, 1.0, 2.0),
        ];
        let runs: Vec<_> = runs.iter().collect();
        assert_eq!(Goal::measured(&targets(&runs)), ["0.900x **no**", "1.000x yes", "0.250x yes"]);
        assert!(section(&runs).contains("| globus-url-copy -p 16 |"), "{}", section(&runs));
        assert!(targets(&runs[1..2]).is_empty() && section(&[]).is_empty());
    }
}
