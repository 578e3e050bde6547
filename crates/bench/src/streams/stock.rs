//! A long fat path between hosts with default settings: a send buffer of 4 MB limits each stream far below the path's rate.

use std::fmt::Write;

use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::BenchClient;
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::{self, RunSeries};

use super::{AUTO, times_as_fast};

const STOCK_PATH: BenchPath = BenchPath::LongStock;
const STOCK_CLIENTS: [BenchClient; 3] = [AUTO, BenchClient::Axel, BenchClient::Aria2];
/// Required ratio of goodput to each peer.
const PEERS: [(BenchClient, f64); 3] =
    [(BenchClient::Axel, 1.5), (BenchClient::Aria2, 2.5), (BenchClient::Curl, 30.0)];
/// Smaller file for curl: its single stream would take ten minutes for the others' file.
const FOR_CURL: Bytes = Bytes::gib(1);

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    vec![
        BenchJob::new(STOCK_PATH, &STOCK_CLIENTS, Bytes::gib(8)),
        BenchJob { is_at_most: true, ..BenchJob::new(STOCK_PATH, &[BenchClient::Curl], FOR_CURL) },
    ]
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let of = |client| RunSeries::of(runs, STOCK_PATH, client);
    let target = |(peer, least)| {
        let (ours, theirs) = (of(AUTO)?, of(peer)?);
        let size = theirs.largest_file();
        let with = if size < ours.largest_file() { format!(" with {size}") } else { String::new() };
        let asked = format!("{STOCK_PATH}: at least {least}x the goodput of {peer}{with}");
        times_as_fast(asked, Some(ours), Some(theirs), least)
    };
    PEERS.into_iter().filter_map(target).collect()
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut text = String::new();
    let clients: Vec<_> = STOCK_CLIENTS.into_iter().chain([BenchClient::Curl]).collect();
    let table = run_series::table(runs, STOCK_PATH, &clients);
    if table.is_empty() {
        return text;
    }
    let _ = writeln!(text, "## {STOCK_PATH}, by the number of streams\n\n{table}");
    let size = |client| Some(RunSeries::of(runs, STOCK_PATH, client)?.largest_file());
    if let (Some(large), Some(small)) = (size(AUTO), size(BenchClient::Curl))
        && small < large
    {
        let _ = writeln!(
            text,
            "curl fetched {small}, the others {large}, for it is so slow. What is compared is the goodput, of which curl's ramp-up, \
             some seconds, takes a larger share then.\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodputs_are_compared_across_file_sizes() {
        for curl in [Bytes::gib(1), Bytes::gib(8)] {
            let run = |client, bytes, wall_s| BenchRun::timed(STOCK_PATH, client, bytes, wall_s);
            let runs = [
                run(AUTO, Bytes::gib(8), 12.0),
                run(BenchClient::Axel, Bytes::gib(8), 24.0),
                run(BenchClient::Aria2, Bytes::gib(8), 24.0),
                run(BenchClient::Curl, curl, 50.0),
            ];
            let runs: Vec<_> = runs.iter().collect();
            let is_smaller = curl == Bytes::gib(1);
            let text = section(&runs);
            assert_eq!(text.contains("curl fetched 1 GiB, the others 8 GiB"), is_smaller, "{text}");
            assert_eq!(text.contains("curl fetched"), is_smaller, "equal sizes have no note: {text}");
            if is_smaller {
                let goals = targets(&runs);
                // curl: 1 GiB in 50 s is 8 GiB in 400 s.
                assert_eq!(Goal::measured(&goals), ["2.000x yes", "2.000x **no**", "33.333x yes"]);
                assert!(goals[2].row()[0].ends_with("at least 30x the goodput of curl with 1 GiB"));
            }
            assert!(targets(&runs[1..]).is_empty() && section(&[]).is_empty());
        }
    }
}
