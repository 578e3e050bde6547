//! One stream of longhaul without a network limit: against curl, and against the bounds of disk and network.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::{self, RunSeries};

const NO_DELAY_PATH: BenchPath = BenchPath::NoDelay;
const NO_DELAY_CLIENTS: [BenchClient; 4] =
    [BenchClient::Streams(Streams::Fixed(1)), BenchClient::Curl, BenchClient::Fio, BenchClient::CurlToNull];

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    vec![BenchJob::new(NO_DELAY_PATH, &NO_DELAY_CLIENTS, Bytes::gib(8))]
}

/// Median goodputs in bits per second.
struct Goodputs {
    longhaul: f64,
    curl: f64,
    disk: f64,
    network: f64,
}

impl Goodputs {
    fn of(runs: &[&BenchRun]) -> Option<Self> {
        let goodput =
            |client| Some(RunSeries::of(runs, NO_DELAY_PATH, client)?.goodput().as_bits_per_sec() as f64);
        let [longhaul, curl, disk, network] = NO_DELAY_CLIENTS.map(goodput);
        Some(Self { longhaul: longhaul?, curl: curl?, disk: disk?, network: network? })
    }

    fn of_bound(&self) -> f64 {
        self.longhaul / self.disk.min(self.network)
    }
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let Some(goodputs) = Goodputs::of(runs) else { return Vec::new() };
    let (bound, curl) = (goodputs.of_bound(), goodputs.longhaul / goodputs.curl);
    vec![
        Goal::new(
            format!("{NO_DELAY_PATH}: at least 0.9 of min(disk, network)"),
            format!("{bound:.3}"),
            bound >= 0.9,
        ),
        Goal::new(format!("{NO_DELAY_PATH}: ahead of curl"), format!("{curl:.3}x"), curl > 1.0),
    ]
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let table = run_series::table(runs, NO_DELAY_PATH, &NO_DELAY_CLIENTS);
    if table.is_empty() {
        return table;
    }
    let mut text = format!("## {NO_DELAY_PATH}, stock hosts, to disk\n\n{table}\n");
    if let Some(goodputs) = Goodputs::of(runs) {
        let limit = if goodputs.disk < goodputs.network { "disk" } else { "network" };
        let _ = writeln!(
            text,
            "Of medians: longhaul reaches {:.2} of min(disk, network), which is the {limit}, and {:.2}x curl. The disk \
             is fio's own figure for O_DIRECT, 4 MiB blocks, 4 in flight, fsync at the end; the network is curl to /dev/null.\n",
            goodputs.of_bound(),
            goodputs.longhaul / goodputs.curl
        );
    }
    text
}
