//! One stream of longhaul where the network is no limit: next to curl, and to what disk and network give by themselves.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::job::Job;
use crate::paths::BenchPath;
use crate::peers::{Client, Streams};
use crate::report::Target;
use crate::run::Run;
use crate::series::{self, Series};

const PATH: BenchPath = BenchPath::NoDelay;
const CLIENTS: [Client; 4] =
    [Client::Streams(Streams::Fixed(1)), Client::Curl, Client::Fio, Client::CurlToNull];

/// Returns what is run.
pub(crate) fn jobs() -> Vec<Job> {
    vec![Job::new(PATH, &CLIENTS, Bytes::gib(8))]
}

/// Median goodputs in bits per second.
struct Goodputs {
    longhaul: f64,
    curl: f64,
    disk: f64,
    network: f64,
}

impl Goodputs {
    fn of(runs: &[&Run]) -> Option<Self> {
        let goodput = |client| Some(Series::of(runs, PATH, client)?.goodput().as_bits_per_sec() as f64);
        let [longhaul, curl, disk, network] = CLIENTS.map(goodput);
        Some(Self { longhaul: longhaul?, curl: curl?, disk: disk?, network: network? })
    }

    fn of_bound(&self) -> f64 {
        self.longhaul / self.disk.min(self.network)
    }
}

/// Returns what was asked of it and how it came out.
pub(crate) fn targets(runs: &[&Run]) -> Vec<Target> {
    let Some(goodputs) = Goodputs::of(runs) else { return Vec::new() };
    let (bound, curl) = (goodputs.of_bound(), goodputs.longhaul / goodputs.curl);
    vec![
        Target::new(
            format!("{PATH}: at least 0.9 of min(disk, network)"),
            format!("{bound:.3}"),
            bound >= 0.9,
        ),
        Target::new(format!("{PATH}: ahead of curl"), format!("{curl:.3}x"), curl > 1.0),
    ]
}

/// Returns the section of the report; empty where nothing was run.
pub(crate) fn section(runs: &[&Run]) -> String {
    let table = series::table(runs, PATH, &CLIENTS);
    if table.is_empty() {
        return table;
    }
    let mut text = format!("## {PATH}, stock hosts, to disk\n\n{table}\n");
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
