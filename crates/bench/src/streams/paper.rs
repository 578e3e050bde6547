//! GridFTP-APT's path: how closely and how soon the tuners approach the best fixed number of streams.

use std::fmt::Write;

use longhaul_core::units::Bytes;
use longhaul_lab::scenario::Spread;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::convergence::{self, NEAR, TAIL, WINDOW};
use crate::markdown_table;
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::RunSeries;

use super::{best_fixed, times_as_fast};

const PAPER_PATH: BenchPath = BenchPath::Paper;
const AUTO_CLIENT: BenchClient = BenchClient::SmallSockets(Streams::Auto);
const APT_CLIENT: BenchClient = BenchClient::SmallSockets(Streams::Apt);
/// Of the fixed numbers, windows of 64 KiB need 20 at this RTT.
const PAPER_CLIENTS: [BenchClient; 6] = [
    AUTO_CLIENT,
    APT_CLIENT,
    BenchClient::SmallSockets(Streams::Fixed(16)),
    BenchClient::SmallSockets(Streams::Fixed(20)),
    BenchClient::SmallSockets(Streams::Fixed(24)),
    BenchClient::SmallSockets(Streams::Fixed(32)),
];
/// The smallest file of the paper.
const FILE: Bytes = Bytes::new(1_000_000_000);

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    vec![BenchJob::new(PAPER_PATH, &PAPER_CLIENTS, FILE)]
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let of = |client| RunSeries::of(runs, PAPER_PATH, client);
    let as_apt =
        times_as_fast(format!("{PAPER_PATH}: at least as fast as APT"), of(AUTO_CLIENT), of(APT_CLIENT), 1.0);
    let asked = format!("{PAPER_PATH}: at least 0.95 of the best fixed number");
    let of_best = times_as_fast(asked, of(AUTO_CLIENT), best_fixed(runs, PAPER_PATH, &PAPER_CLIENTS), 0.95);
    let sooner = converged(runs, AUTO_CLIENT).zip(converged(runs, APT_CLIENT)).map(|(ours, apt)| {
        let measured = format!("{}; APT {}", spread(ours), spread(apt));
        Goal::new(
            format!("{PAPER_PATH}: converged in fewer seconds than APT"),
            measured,
            ours.median < apt.median,
        )
    });
    as_apt.into_iter().chain(of_best).chain(sooner).collect()
}

/// Returns the seconds to converge, infinite without convergence; `None` if the client or all fixed numbers have not run.
fn converged(runs: &[&BenchRun], client: BenchClient) -> Option<Spread> {
    let best = best_fixed(runs, PAPER_PATH, &PAPER_CLIENTS)?.goodput();
    let since = |run: &BenchRun| {
        convergence::since(&run.by_second, best).map_or(f64::INFINITY, |second| second as f64)
    };
    RunSeries::of(runs, PAPER_PATH, client)?.figure(|run| Some(since(run)))
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let row = |client: &BenchClient| Some(row(runs, *client, &RunSeries::of(runs, PAPER_PATH, *client)?));
    let rows: Vec<_> = PAPER_CLIENTS.iter().filter_map(row).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        let _ = writeln!(
            text,
            "## {PAPER_PATH}, by the number of streams\n\n{}\nA client has converged from the second, counted from the transfer's start, after \
             which every {WINDOW} s that begin with a whole second, but for the last {TAIL} of the transfer, brought at least {:.0} % of \
             what the best fixed number brought over all of its time.\n",
            markdown_table::markdown(&PAPER_COLUMNS, &rows),
            NEAR * 100.0
        );
    }
    text
}

const PAPER_COLUMNS: [&str; 6] = [
    "client",
    "time, s: median (least to largest)",
    "goodput, Mbit/s",
    "converged, s",
    "dropped",
    "runs (marked)",
];

fn row(runs: &[&BenchRun], client: BenchClient, series: &RunSeries<'_>) -> Vec<String> {
    let figure =
        |of: fn(&BenchRun) -> f64, digits| markdown_table::spread(series.figure(|run| Some(of(run))), digits);
    vec![
        client.to_string(),
        figure(|run| run.wall_s, 1),
        figure(|run| run.goodput().as_bits_per_sec() as f64 / 1e6, 1),
        converged(runs, client).map_or("-".to_owned(), spread),
        figure(|run| run.dropped as f64, 0),
        series.counted(),
    ]
}

fn spread(Spread { median, min, max }: Spread) -> String {
    match min == max {
        true => seconds(median),
        false => format!("{} ({} to {})", seconds(median), seconds(min), seconds(max)),
    }
}

fn seconds(value: f64) -> String {
    if value.is_finite() { format!("{value:.0}") } else { "never".to_owned() }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    /// A run of 100 s with 40 Mbit/s for `slow` seconds, then 80 Mbit/s.
    fn run(client: BenchClient, slow: usize, wall_s: f64) -> BenchRun {
        let mbit = |mbit: u64| Rate::bits_per_sec(mbit * 1_000_000);
        let by_second = [vec![mbit(40); slow], vec![mbit(80); 100 - slow]].concat();
        BenchRun { by_second, ..BenchRun::timed(PAPER_PATH, client, FILE, wall_s) }
    }

    fn measured(runs: &[BenchRun]) -> Vec<String> {
        Goal::measured(&targets(&runs.iter().collect::<Vec<_>>()))
    }

    #[test]
    fn the_best_fixed_number_and_apt_are_compared_with() {
        // 1 GB in 100 s is 80 Mbit/s; 32 streams are slower.
        let mut runs = vec![
            run(AUTO_CLIENT, 7, 104.0),
            run(APT_CLIENT, 30, 120.0),
            run(PAPER_CLIENTS[3], 1, 100.0),
            run(PAPER_CLIENTS[5], 2, 130.0),
        ];
        assert_eq!(measured(&runs), ["1.154x yes", "0.962x yes", "7; APT 30 yes"]);
        let text = section(&runs.iter().collect::<Vec<_>>());
        assert!(text.contains("| longhaul, APT | 120.0 | 66.7 | 30 | 0 | 1 (0) |"), "{text}");
        // A client that never converges does not meet the goal.
        (runs[0], runs[1]) = (run(AUTO_CLIENT, 95, 110.0), run(APT_CLIENT, 95, 120.0));
        assert_eq!(measured(&runs), ["1.091x yes", "0.909x **no**", "never; APT never **no**"]);
        runs[0] = run(AUTO_CLIENT, 95, 121.0);
        assert_eq!(measured(&runs)[0], "0.992x **no**");
    }

    #[test]
    fn repetitions_are_summed_up_and_need_a_best_fixed_number() {
        let runs: Vec<_> = [5, 9, 95].map(|slow| run(AUTO_CLIENT, slow, 104.0)).into();
        let with_best: Vec<_> = runs.into_iter().chain([run(PAPER_CLIENTS[3], 1, 100.0)]).collect();
        let without = [run(AUTO_CLIENT, 7, 104.0), run(APT_CLIENT, 30, 120.0)];
        for (runs, row) in [
            (&with_best[..], "| longhaul | 104.0 | 76.9 | 9 (5 to never) | 0 | 3 (0) |"),
            (&without, "| longhaul | 104.0 | 76.9 | - | 0 | 1 (0) |"),
        ] {
            let text = section(&runs.iter().collect::<Vec<_>>());
            assert!(text.contains(row), "{text}");
        }
        let rows: Vec<_> = targets(&without.iter().collect::<Vec<_>>()).iter().map(Goal::row).collect();
        assert!(matches!(&rows[..], [row] if row[0].ends_with("at least as fast as APT")), "{rows:?}");
        assert!(section(&[]).is_empty());
    }
}
