//! The number of streams: Longhaul's tuner against fixed numbers, APT, and peers with a given number.

pub(crate) mod fairness;
pub(crate) mod paper;
pub(crate) mod stock;
pub(crate) mod tuned;

use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::RunSeries;

/// Longhaul with default options.
const AUTO: BenchClient = BenchClient::Streams(Streams::Auto);

/// Returns the goal that the goodput of `ours` is at least `times` that of `theirs`; `None` unless both have run.
fn times_as_fast(
    asked: String,
    ours: Option<RunSeries<'_>>,
    theirs: Option<RunSeries<'_>>,
    least: f64,
) -> Option<Goal> {
    let [ours, theirs] = [ours?, theirs?].map(|series| series.goodput().as_bits_per_sec() as f64);
    let ratio = ours / theirs;
    Some(Goal::new(asked, format!("{ratio:.3}x"), ratio >= least))
}

/// Returns the fixed number of streams with the highest goodput.
fn best_fixed<'a>(runs: &[&'a BenchRun], path: BenchPath, clients: &[BenchClient]) -> Option<RunSeries<'a>> {
    let fixed = clients.iter().filter(|client| client.is_fixed());
    fixed.filter_map(|client| RunSeries::of(runs, path, *client)).max_by_key(RunSeries::goodput)
}
