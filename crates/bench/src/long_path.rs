//! One stream of longhaul against curl on a long fat path.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::{self, RunSeries};

const LONG_PATHS: [BenchPath; 2] = [BenchPath::LongCubic, BenchPath::LongBbr];
const LONG_PATH_CLIENTS: [BenchClient; 2] = [BenchClient::Streams(Streams::Fixed(1)), BenchClient::Curl];

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    LONG_PATHS.map(|path| BenchJob::new(path, &LONG_PATH_CLIENTS, Bytes::gib(8))).into()
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let mut targets = Vec::new();
    for path in LONG_PATHS {
        let [Some(longhaul), Some(curl)] = LONG_PATH_CLIENTS.map(|client| RunSeries::of(runs, path, client))
        else {
            continue;
        };
        let goodput = ratio(&longhaul, &curl);
        targets.push(Goal::new(
            format!("{path}: goodput at least curl's"),
            format!("{goodput:.3}x"),
            goodput >= 1.0,
        ));
        if let Some((of_path, of_payload)) = steady_shares(&longhaul, path) {
            let measured =
                format!("{:.1} % ({:.1} % counting payload only)", of_payload * 100.0, of_path * 100.0);
            let asked = format!("{path}: at least 95 % of the path in steady state");
            targets.push(Goal::new(asked, measured, of_payload >= 0.95));
        }
        let cpu = longhaul.cpu_per_gib() / curl.cpu_per_gib();
        targets.push(Goal::new(format!("{path}: at most 0.6x curl's CPU"), format!("{cpu:.3}x"), cpu <= 0.6));
    }
    targets
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut text = String::new();
    for path in LONG_PATHS {
        let table = run_series::table(runs, path, &LONG_PATH_CLIENTS);
        if table.is_empty() {
            continue;
        }
        let _ = writeln!(text, "## {path}, tuned hosts, to disk\n\n{table}");
        let [Some(longhaul), Some(curl)] = LONG_PATH_CLIENTS.map(|client| RunSeries::of(runs, path, client))
        else {
            continue;
        };
        let (goodput, cpu) = (ratio(&longhaul, &curl), longhaul.cpu_per_gib() / curl.cpu_per_gib());
        let _ = writeln!(text, "longhaul/curl, of medians: goodput {goodput:.2}x, CPU {cpu:.2}x.\n");
        if let (Some(steady), Some((of_path, of_payload))) =
            (longhaul.steady(), steady_shares(&longhaul, path))
        {
            let [median, min, max] = [steady.median, steady.min, steady.max].map(|rate| rate / 1e9);
            let _ = writeln!(
                text,
                "Steady state of longhaul: {median:.2} Gbit/s of payload ({min:.2} to {max:.2}), which is {:.1} % of the \
                 path's rate, and {:.1} % of what payload can reach: the rate counts IP packets, of whose 1500 bytes \
                 1448 are payload. A run's steady state is the median over its whole seconds, from the first that \
                 reaches 90 % of its best one to the last byte.\n",
                of_path * 100.0,
                of_payload * 100.0
            );
        }
    }
    text
}

fn ratio(longhaul: &RunSeries<'_>, curl: &RunSeries<'_>) -> f64 {
    longhaul.goodput().as_bits_per_sec() as f64 / curl.goodput().as_bits_per_sec() as f64
}

/// Returns the steady rate's share of the path's rate, and of its payload rate.
fn steady_shares(longhaul: &RunSeries<'_>, path: BenchPath) -> Option<(f64, f64)> {
    let steady = longhaul.steady()?.median;
    let (rate, payload) = (path.spec().rate?, path.spec().payload_rate()?);
    Some((steady / rate.as_bits_per_sec() as f64, steady / payload.as_bits_per_sec() as f64))
}
