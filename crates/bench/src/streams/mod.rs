//! The number of streams: Longhaul's own choice beside fixed numbers, APT, and peers that are told one.

pub(crate) mod fairness;
pub(crate) mod paper;
pub(crate) mod stock;
pub(crate) mod tuned;

use crate::paths::BenchPath;
use crate::peers::{Client, Streams};
use crate::report::Target;
use crate::run::Run;
use crate::series::Series;

/// Longhaul as it is by itself.
const AUTO: Client = Client::Streams(Streams::Auto);

/// Asks that the goodput of `ours` is at least so many times that of `theirs`; nothing where either has not run.
fn times_as_fast(
    asked: String,
    ours: Option<Series<'_>>,
    theirs: Option<Series<'_>>,
    least: f64,
) -> Option<Target> {
    let [ours, theirs] = [ours?, theirs?].map(|series| series.goodput().as_bits_per_sec() as f64);
    let ratio = ours / theirs;
    Some(Target::new(asked, format!("{ratio:.3}x"), ratio >= least))
}

/// Returns the fixed number of streams whose goodput is the highest.
fn best_fixed<'a>(runs: &[&'a Run], path: BenchPath, clients: &[Client]) -> Option<Series<'a>> {
    let fixed = clients.iter().filter(|client| client.is_fixed());
    fixed.filter_map(|client| Series::of(runs, path, *client)).max_by_key(Series::goodput)
}
