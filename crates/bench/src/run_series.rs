//! Statistics of the runs of one client on one path.

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::scenario::Spread;

use crate::bench_run::BenchRun;
use crate::clients::BenchClient;
use crate::markdown_table;
use crate::paths::BenchPath;

/// Column heads of [`RunSeries::row`].
pub(crate) const SERIES_COLUMNS: [&str; 6] = [
    "client",
    "goodput, Gbit/s: median (least to largest)",
    "until it is on the disk",
    "CPU, s/GiB",
    "largest RSS",
    "runs (marked)",
];

/// Runs of one client, at least one: those on a faithful path, or the marked ones if there are no others.
#[derive(Debug)]
pub(crate) struct RunSeries<'a> {
    client: BenchClient,
    runs: Vec<&'a BenchRun>,
    /// Number of runs, including those left out.
    total: usize,
    marked: usize,
}

impl<'a> RunSeries<'a> {
    /// Selects the runs; `None` if there are none.
    pub(crate) fn of(runs: &[&'a BenchRun], path: BenchPath, client: BenchClient) -> Option<Self> {
        Self::of_those(runs, path, client, |_| true)
    }

    /// Selects the runs with files of this size.
    pub(crate) fn of_size(
        runs: &[&'a BenchRun],
        path: BenchPath,
        client: BenchClient,
        size: Bytes,
    ) -> Option<Self> {
        Self::of_those(runs, path, client, |run| run.bytes == size.get())
    }

    fn of_those(
        runs: &[&'a BenchRun],
        path: BenchPath,
        client: BenchClient,
        is_meant: impl Fn(&BenchRun) -> bool,
    ) -> Option<Self> {
        let is_one = |run: &&BenchRun| run.path == path && run.client == client && is_meant(run);
        let all = runs.iter().copied().filter(is_one);
        let (held, marked): (Vec<_>, Vec<_>) = all.partition(|run| run.warnings.is_empty());
        let (total, count) = (held.len() + marked.len(), marked.len());
        let runs = if held.is_empty() { marked } else { held };
        (total > 0).then_some(Self { client, runs, total, marked: count })
    }

    fn spread(&self, figure: impl Fn(&BenchRun) -> f64) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| figure(run)))
    }

    fn median(&self, figure: impl Fn(&BenchRun) -> f64) -> f64 {
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
        self.median(BenchRun::cpu_per_gib)
    }

    /// Returns the largest resident set of all runs.
    pub(crate) fn largest_resident(&self) -> Bytes {
        Bytes::new(self.runs.iter().map(|run| run.max_rss_bytes).max().unwrap_or(0))
    }

    /// Returns the maximum of page faults of a run.
    pub(crate) fn most_faults(&self) -> u64 {
        self.runs.iter().map(|run| run.minor_faults).max().unwrap_or(0)
    }

    /// Returns the size of the largest file.
    pub(crate) fn largest_file(&self) -> Bytes {
        Bytes::new(self.runs.iter().map(|run| run.bytes).max().unwrap_or(0))
    }

    /// Returns the steady rates in bits per second; `None` if no run is long enough.
    pub(crate) fn steady(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| Some(run.steady_bps? as f64)))
    }

    /// Returns a figure that only some runs have; `None` if none has it.
    pub(crate) fn figure(&self, figure: impl Fn(&BenchRun) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| figure(run)))
    }

    /// Returns the series' row of a table with [`SERIES_COLUMNS`].
    pub(crate) fn row(&self) -> Vec<String> {
        let gbits = |rate: Rate| rate.as_bits_per_sec() as f64 / 1e9;
        let (kept, fetched) = (self.client.keeps_file(), self.client.server().is_some());
        let or_dash = |there: bool, text: String| if there { text } else { "-".to_owned() };
        vec![
            self.client.to_string(),
            markdown_table::spread(self.spread(|run| gbits(run.goodput())), 2),
            or_dash(kept, markdown_table::spread(self.spread(|run| gbits(run.goodput_to_disk())), 2)),
            or_dash(fetched, markdown_table::spread(self.spread(BenchRun::cpu_per_gib), 3)),
            or_dash(fetched, self.largest_resident().to_string()),
            self.counted(),
        ]
    }

    /// Returns the number of runs, and of marked runs, which count only if all are marked.
    pub(crate) fn counted(&self) -> String {
        format!("{} ({})", self.total, self.marked)
    }
}

/// Returns a table of the clients that have run on `path`; empty if none has.
pub(crate) fn table(runs: &[&BenchRun], path: BenchPath, clients: &[BenchClient]) -> String {
    table_by(clients, |client| RunSeries::of(runs, path, client))
}

/// Returns a table of the runs with files of this size.
pub(crate) fn table_of_size(
    runs: &[&BenchRun],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_runs_count_only_where_there_are_no_others() {
        let timed = |wall_s| BenchRun::timed(BenchPath::LongCubic, BenchClient::Curl, Bytes::gib(1), wall_s);
        let run = |wall_s, warning: Option<&str>| BenchRun {
            warnings: warning.map(str::to_owned).into_iter().collect(),
            ..timed(wall_s)
        };
        let runs = [run(50.0, Some("late")), run(10.0, None), run(60.0, Some("late"))];
        let of = |runs: &[&BenchRun]| {
            let series = RunSeries::of(runs, BenchPath::LongCubic, BenchClient::Curl)?;
            Some((series.time(), series.counted()))
        };
        assert_eq!(of(&[&runs[0], &runs[1], &runs[2]]), Some((10.0, "3 (2)".to_owned())));
        assert_eq!(of(&[&runs[0], &runs[2]]), Some((55.0, "2 (2)".to_owned())));
        assert_eq!(of(&[]), None);
    }
}
