//! The number of streams: Longhaul's own choice beside fixed numbers, APT, and peers that are told one.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::measure::Job;
use crate::paths::BenchPath;
use crate::peers::{Client, Streams};
use crate::report::Target;
use crate::run::Run;
use crate::series::{self, Series};

const AUTO: Client = Client::Longhaul(None);
const STOCK: [Client; 4] = [AUTO, Client::Axel, Client::Aria2, Client::Curl];
const TUNED: [Client; 5] = [
    AUTO,
    Client::Streams(Streams::Fixed(1)),
    Client::Streams(Streams::Fixed(4)),
    Client::Streams(Streams::Fixed(16)),
    Client::Curl,
];
/// Of the fixed numbers 20 is what 64 KB of window need at this RTT.
const PAPER: [Client; 5] = [
    Client::SmallSockets(Streams::Auto),
    Client::SmallSockets(Streams::Apt),
    Client::SmallSockets(Streams::Fixed(16)),
    Client::SmallSockets(Streams::Fixed(24)),
    Client::SmallSockets(Streams::Fixed(32)),
];
const LARGE: Bytes = Bytes::gib(8);
const SMALL: Bytes = Bytes::gib(1);

/// Returns what is run.
pub(crate) fn jobs() -> Vec<Job> {
    let job = |path, clients: &[Client], size| Job { path, clients: clients.to_vec(), size, warm: true };
    vec![
        job(BenchPath::LongStock, &STOCK, LARGE),
        job(BenchPath::LongCubic, &TUNED, LARGE),
        job(BenchPath::LongCubic, &[AUTO, Client::Curl], SMALL),
        job(BenchPath::Paper, &PAPER, Bytes::new(1_000_000_000)),
    ]
}

/// Returns what was asked of it and how it came out; nothing of paths where no other number of streams was tried.
pub(crate) fn targets(runs: &[Run]) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut times_as_fast = |asked: String, ours: Option<Series<'_>>, theirs: Option<Series<'_>>, least| {
        if let Some((ours, theirs)) = ours.zip(theirs) {
            let ratio = theirs.time() / ours.time();
            targets.push(Target::new(asked, format!("{ratio:.2}x"), ratio >= least));
        }
    };
    let path = BenchPath::LongStock;
    for (peer, least) in [(Client::Axel, 1.5), (Client::Aria2, 2.5), (Client::Curl, 30.0)] {
        let asked = format!("{path}: at least {least}x as fast as {peer}");
        times_as_fast(asked, Series::of(runs, path, AUTO), Series::of(runs, path, peer), least);
    }
    let path = BenchPath::LongCubic;
    if let Some(best) = best_fixed(runs, path, &TUNED) {
        let large = |client| Series::of_size(runs, path, client, LARGE);
        let one = large(Client::Streams(Streams::Fixed(1)));
        times_as_fast(format!("{path}: at least as fast as one stream"), large(AUTO), one, 1.0);
        times_as_fast(
            format!("{path}: at least 0.97 of the best fixed number"),
            large(AUTO),
            large(best),
            0.97,
        );
        for (size, most) in [(SMALL, 0.8), (LARGE, 0.9)] {
            let of = |client| Series::of_size(runs, path, client, size);
            let asked = format!("{path}: {size} in at most {most}x curl's time");
            times_as_fast(asked, of(AUTO), of(Client::Curl), 1.0 / most);
        }
    }
    let path = BenchPath::Paper;
    if let Some(best) = best_fixed(runs, path, &PAPER) {
        let [auto, apt, best] = [PAPER[0], PAPER[1], best].map(|client| Series::of(runs, path, client));
        times_as_fast(format!("{path}: at least as fast as APT"), auto, apt, 1.0);
        let auto = Series::of(runs, path, PAPER[0]);
        times_as_fast(format!("{path}: at least 0.95 of the best fixed number"), auto, best, 0.95);
    }
    targets
}

/// Returns the fixed number of streams that took the least time.
fn best_fixed(runs: &[Run], path: BenchPath, clients: &[Client]) -> Option<Client> {
    let time =
        |client: &Client| Some((*client, Series::of_size(runs, path, *client, largest(runs, path)?)?.time()));
    let fixed = clients.iter().filter(|client| client.is_fixed());
    fixed.filter_map(time).min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(client, _)| client)
}

fn largest(runs: &[Run], path: BenchPath) -> Option<Bytes> {
    runs.iter().filter(|run| run.path == path).map(|run| Bytes::new(run.bytes)).max()
}

/// Returns the section of the report; empty where nothing was run.
pub(crate) fn section(runs: &[Run]) -> String {
    let mut text = String::new();
    let tried = |path, clients: &[Client]| best_fixed(runs, path, clients).is_some();
    for (path, clients) in
        [(BenchPath::LongStock, &STOCK[..]), (BenchPath::LongCubic, &TUNED), (BenchPath::Paper, &PAPER)]
    {
        if path == BenchPath::LongCubic && !tried(path, clients) {
            continue;
        }
        let mut sizes: Vec<_> = runs.iter().filter(|run| run.path == path).map(|run| run.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes.into_iter().map(Bytes::new) {
            let table = series::table_of_size(runs, path, clients, size);
            let _ = writeln!(text, "## {path}, {size}, by the number of streams\n\n{table}");
        }
    }
    text
}
