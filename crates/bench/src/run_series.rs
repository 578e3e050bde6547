//! Statistics of the runs of one client on one path.

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::scenario::Spread;

use crate::clients::BenchClient;
use crate::markdown_table;
use crate::paths::BenchPath;
use crate::run_result::RunResult;

/// The head of [`RunSeries::row`].
pub(crate) const SERIES_COLUMNS: [&str; 6] = [
    "client",
    "goodput, Gbit/s: median (least to largest)",
    "until it is on the disk",
    "CPU, s/GiB",
    "largest RSS",
    "runs (marked)",
];

/// At least one run.
#[derive(Debug)]
pub(crate) struct RunSeries<'a> {
    client: BenchClient,
    runs: Vec<&'a RunResult>,
}

impl<'a> RunSeries<'a> {
    /// Picks the runs; `None` where there are none.
    pub(crate) fn of(runs: &[&'a RunResult], path: BenchPath, client: BenchClient) -> Option<Self> {
        let is_one = |run: &&RunResult| run.path == path && run.client == client;
        let runs: Vec<_> = runs.iter().copied().filter(is_one).collect();
        (!runs.is_empty()).then_some(Self { client, runs })
    }

    /// Picks those of files of this size.
    pub(crate) fn of_size(
        runs: &[&'a RunResult],
        path: BenchPath,
        client: BenchClient,
        size: Bytes,
    ) -> Option<Self> {
        let mut series = Self::of(runs, path, client)?;
        series.runs.retain(|run| run.bytes == size.get());
        (!series.runs.is_empty()).then_some(series)
    }

    fn spread(&self, figure: impl Fn(&RunResult) -> f64) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| figure(run)))
    }

    fn median(&self, figure: impl Fn(&RunResult) -> f64) -> f64 {
        self.spread(figure).map_or(f64::NAN, |spread| spread.median)
    }

    /// Returns the median goodput.
    pub(crate) fn goodput(&self) -> Rate {
        Rate::bits_per_sec(self.median(|run| run.goodput().as_bits_per_sec() as f64) as u64)
    }

    /// Returns the median time in seconds.
    pub(crate) fn time(&self) -> f64 {
        self.median(|run| run.wall_s)
    }

    /// Returns the longest time in seconds over the median.
    pub(crate) fn worst_over_median(&self) -> f64 {
        self.spread(|run| run.wall_s).map_or(f64::NAN, |spread| spread.max / spread.median)
    }

    /// Returns the median of CPU seconds per GiB.
    pub(crate) fn cpu_per_gib(&self) -> f64 {
        self.median(RunResult::cpu_per_gib)
    }

    /// Returns the largest resident set of all.
    pub(crate) fn largest_resident(&self) -> Bytes {
        Bytes::new(self.runs.iter().map(|run| run.max_rss_bytes).max().unwrap_or(0))
    }

    /// Returns the most page faults of a run.
    pub(crate) fn most_faults(&self) -> u64 {
        self.runs.iter().map(|run| run.minor_faults).max().unwrap_or(0)
    }

    /// Returns the size of the largest file.
    pub(crate) fn largest_file(&self) -> Bytes {
        Bytes::new(self.runs.iter().map(|run| run.bytes).max().unwrap_or(0))
    }

    /// Returns the steady rates in bits per second; `None` where no run is long enough.
    pub(crate) fn steady(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| Some(run.steady_bps? as f64)))
    }

    /// Returns a figure that not every run has; `None` where none has.
    pub(crate) fn figure(&self, figure: impl Fn(&RunResult) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| figure(run)))
    }

    /// Returns its row of a table under [`SERIES_COLUMNS`].
    pub(crate) fn row(&self) -> Vec<String> {
        let gbits = |rate: Rate| rate.as_bits_per_sec() as f64 / 1e9;
        let (kept, fetched) = (self.client.keeps_file(), self.client.server().is_some());
        let or_dash = |there: bool, text: String| if there { text } else { "-".to_owned() };
        vec![
            self.client.to_string(),
            markdown_table::spread(self.spread(|run| gbits(run.goodput())), 2),
            or_dash(kept, markdown_table::spread(self.spread(|run| gbits(run.goodput_to_disk())), 2)),
            or_dash(fetched, markdown_table::spread(self.spread(RunResult::cpu_per_gib), 3)),
            or_dash(fetched, self.largest_resident().to_string()),
            self.counted(),
        ]
    }

    /// Returns how many runs there are, and how many of them are marked.
    pub(crate) fn counted(&self) -> String {
        let marked = self.runs.iter().filter(|run| !run.warnings.is_empty()).count();
        format!("{} ({marked})", self.runs.len())
    }
}

/// A table of the clients that have run on `path`; empty where none has.
pub(crate) fn table(runs: &[&RunResult], path: BenchPath, clients: &[BenchClient]) -> String {
    table_by(clients, |client| RunSeries::of(runs, path, client))
}

/// A table of those that have fetched a file of this size.
pub(crate) fn table_of_size(
    runs: &[&RunResult],
    path: BenchPath,
    clients: &[BenchClient],
    size: Bytes,
) -> String {
    table_by(clients, |client| RunSeries::of_size(runs, path, client, size))
}

fn table_by<'a>(clients: &[BenchClient], series: impl Fn(BenchClient) -> Option<RunSeries<'a>>) -> String {
    let rows: Vec<_> = clients.iter().filter_map(|client| Some(series(*client)?.row())).collect();
    if rows.is_empty() { String::new() } else { markdown_table::markdown(&SERIES_COLUMNS, &rows) }
}
