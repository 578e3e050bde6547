//! Total times of commands with default options, against their peers.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::markdown_table;
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::RunSeries;

const GET: BenchClient = BenchClient::Streams(Streams::Auto);
const GET_ONE_STREAM: BenchClient = BenchClient::Streams(Streams::Fixed(1));
const GET_FROM_SERVE: BenchClient = BenchClient::GetFromServe;
const PUT: BenchClient = BenchClient::PutDefault;
const PUT_UNVERIFIED: BenchClient = BenchClient::PutUnverified;
const CURL: BenchClient = BenchClient::CurlUpload;
const LARGE: Bytes = Bytes::gib(8);
/// Transferred within slow start.
const SMALL: Bytes = Bytes::gib(1);

/// Per comparison: path, clients, and file size.
fn comparisons() -> [(BenchPath, Vec<BenchClient>, Bytes); 5] {
    [
        (BenchPath::LongCubic, vec![PUT, PUT_UNVERIFIED, CURL], LARGE),
        (BenchPath::LongBbr, vec![PUT, CURL], LARGE),
        (BenchPath::LongStock, vec![PUT, GET], LARGE),
        (BenchPath::LongCubic, vec![GET, GET_ONE_STREAM, GET_FROM_SERVE], LARGE),
        (BenchPath::LongCubic, vec![GET], SMALL),
    ]
}

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    let job = |(path, clients, size): (BenchPath, Vec<BenchClient>, Bytes)| BenchJob {
        is_at_most: true,
        ..BenchJob::new(path, &clients, size)
    };
    comparisons().into_iter().map(job).collect()
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let large = |path, client| RunSeries::of_size(runs, path, client, LARGE);
    let (cubic, bbr, stock) = (BenchPath::LongCubic, BenchPath::LongBbr, BenchPath::LongStock);
    let mut goals = Vec::new();
    for path in [cubic, bbr] {
        if let (Some(put), Some(curl)) = (large(path, PUT), large(path, CURL)) {
            let time = put.time() / curl.time();
            goals.push(at_most(format!("{path}: put, verified, at most the time of {CURL}"), time, 1.0));
            let cpu = put.cpu_per_gib() / curl.cpu_per_gib();
            goals.push(at_most(format!("{path}: put, at most half of the CPU of {CURL}"), cpu, 0.5));
        }
    }
    if let (Some(put), Some(unverified)) = (large(cubic, PUT), large(cubic, PUT_UNVERIFIED)) {
        let seconds = put.cpu_per_gib() - unverified.cpu_per_gib();
        let asked = format!("{cubic}: put, at most 0.25 CPU seconds a GiB for the digest");
        goals.push(Goal::new(asked, format!("{seconds:.2} s"), seconds <= 0.25));
    }
    if let (Some(put), Some(get)) = (large(stock, PUT), large(stock, GET)) {
        let ratio = get.time() / put.time();
        let asked = format!("{stock}: put, at least 0.9 of get's goodput");
        goals.push(Goal::new(asked, format!("{ratio:.3}x"), ratio >= 0.9));
    }
    if let (Some(serve), Some(nginx)) = (large(cubic, GET_FROM_SERVE), large(cubic, GET)) {
        let ratio = serve.time() / nginx.time();
        goals.push(at_most(
            format!("{cubic}: get from serve, at most 1.03x the time from nginx"),
            ratio,
            1.03,
        ));
    }
    let digest = large(cubic, GET_FROM_SERVE).and_then(|serve| serve.figure(|run| run.digest_s));
    if let Some(digest) = digest {
        let asked = format!("{cubic}: get from serve, digest at most 0.3 s after the last byte");
        goals.push(Goal::new(asked, format!("{:.2} s", digest.median), digest.median <= 0.3));
    }
    goals.extend(steadiness(large(cubic, GET), large(cubic, GET_ONE_STREAM)));
    for (size, seconds) in [(SMALL, 3.2), (LARGE, 9.6)] {
        let Some(get) = RunSeries::of_size(runs, cubic, GET, size) else { continue };
        let asked = format!("{cubic}: get, {size} in at most {seconds} s");
        goals.push(Goal::new(asked, format!("{:.2} s", get.time()), get.time() <= seconds));
        let cpu = get.cpu_per_gib();
        let asked = format!("{cubic}: get, {size}, at most 0.3 CPU seconds a GiB");
        goals.push(Goal::new(asked, format!("{cpu:.2} s"), cpu <= 0.3));
    }
    goals
}

/// Returns the goals of the default `get` relative to one stream, and of its variation.
fn steadiness(default: Option<RunSeries<'_>>, one_stream: Option<RunSeries<'_>>) -> Vec<Goal> {
    let (Some(default), Some(one_stream)) = (default, one_stream) else { return Vec::new() };
    let (faults, resident) = (default.most_faults(), default.largest_resident());
    vec![
        at_most(
            "default get, at most the time of --streams 1".into(),
            default.time() / one_stream.time(),
            1.0,
        ),
        at_most(
            "default get, the slowest run at most 1.15x the median".into(),
            default.worst_over_median(),
            1.15,
        ),
        Goal::new("default get, at most 20,000 page faults".into(), faults.to_string(), faults <= 20_000),
        Goal::new(
            "default get, at most 150 MB resident".into(),
            resident.to_string(),
            resident <= Bytes::new(150_000_000),
        ),
    ]
}

fn at_most(asked: String, ratio: f64, most: f64) -> Goal {
    Goal::new(asked, format!("{ratio:.3}x"), ratio <= most)
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut text = String::new();
    for (path, clients, size) in comparisons() {
        let row = |client: &BenchClient| Some(row(&RunSeries::of_size(runs, path, *client, size)?, *client));
        let rows: Vec<_> = clients.iter().filter_map(row).collect();
        if !rows.is_empty() {
            let table = markdown_table::markdown(&TOTAL_TIME_COLUMNS, &rows);
            let _ = writeln!(text, "## {path}: total time, {size}\n\n{table}");
        }
    }
    text
}

const TOTAL_TIME_COLUMNS: [&str; 6] = [
    "client",
    "time, s: median (least to largest)",
    "CPU, s/GiB",
    "page faults",
    "largest RSS",
    "runs (marked)",
];

fn row(series: &RunSeries<'_>, client: BenchClient) -> Vec<String> {
    let figure =
        |of: fn(&BenchRun) -> f64, digits| markdown_table::spread(series.figure(|run| Some(of(run))), digits);
    vec![
        client.to_string(),
        figure(|run| run.wall_s, 2),
        figure(BenchRun::cpu_per_gib, 3),
        figure(|run| run.minor_faults as f64, 0),
        series.largest_resident().to_string(),
        series.counted(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goals(runs: &[BenchRun]) -> Vec<String> {
        Goal::measured(&targets(&runs.iter().collect::<Vec<_>>()))
    }

    fn run(client: BenchClient, size: Bytes, wall_s: f64) -> BenchRun {
        BenchRun { minor_faults: 30_000, ..BenchRun::timed(BenchPath::LongCubic, client, size, wall_s) }
    }

    #[test]
    fn clients_are_held_to_curl_to_one_stream_and_to_themselves() {
        let put = |client, wall_s, user_s| BenchRun { user_s, ..run(client, LARGE, wall_s) };
        assert_eq!(goals(&[put(PUT, 11.0, 2.0), put(CURL, 10.0, 5.0)]), ["1.100x **no**", "0.400x yes"]);
        let runs = [(GET, 9.0), (GET, 9.5), (GET, 12.0), (GET_ONE_STREAM, 10.0)];
        let runs = runs.map(|(client, wall_s)| run(client, LARGE, wall_s));
        assert_eq!(goals(&runs)[..3], ["0.950x yes", "1.263x **no**", "30000 **no**"]);
        // The digest's time counts from the last byte.
        let digests =
            [0.1, 0.4, 0.5].map(|s| BenchRun { digest_s: Some(s), ..run(GET_FROM_SERVE, LARGE, 1.0) });
        assert_eq!(goals(&digests), ["0.40 s **no**"]);
        assert!(goals(&[run(GET_FROM_SERVE, LARGE, 1.0)]).is_empty());
    }

    #[test]
    fn sizes_are_kept_apart() {
        let runs = [run(GET, SMALL, 3.0), run(GET, LARGE, 9.9)];
        let rows = goals(&runs);
        let has = |expected: &str| rows.iter().any(|row| row == expected);
        assert!(has("3.00 s yes") && has("9.90 s **no**"), "{rows:?}");
        let text = section(&runs.iter().collect::<Vec<_>>());
        assert_eq!(text.matches("| longhaul |").count(), 2, "{text}");
    }
}
