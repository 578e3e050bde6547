//! InterContinental Disk Copy: pacing on a long path with a shallow switch queue, alone and beside cross traffic.

use std::fmt::Write;

use longhaul_core::pace::Pace;
use longhaul_core::units::Bytes;
use longhaul_lab::scenario::Spread;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::markdown_table;
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::RunSeries;

const PACED: BenchClient = BenchClient::Served(Pace::Auto);
const UNPACED: BenchClient = BenchClient::Served(Pace::Off);
/// Several streams from nginx, which does not pace.
const SEVERAL: BenchClient = BenchClient::Streams(Streams::Auto);

/// From disk to disk, as in the paper; the reference is curl from nginx with cubic.
const ALONE_RUNS: [(BenchPath, &[BenchClient]); 2] = [
    (BenchPath::SwitchCubic, &[PACED, UNPACED, SEVERAL, BenchClient::Curl]),
    (BenchPath::SwitchBbr, &[PACED, UNPACED, BenchClient::Curl]),
];
const SHARED: [(BenchPath, &[BenchClient]); 2] = [
    (BenchPath::SharedCubic, &[PACED, UNPACED, BenchClient::Curl]),
    (BenchPath::SharedBbr, &[PACED, UNPACED, BenchClient::Curl]),
];
const PUT: [(BenchPath, &[BenchClient]); 1] = [(BenchPath::LongCubic, &[BenchClient::Put])];

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    let job = |gib| {
        move |(path, clients): (BenchPath, &[BenchClient])| BenchJob {
            warm: false,
            ..BenchJob::new(path, clients, Bytes::gib(gib))
        }
    };
    ALONE_RUNS.into_iter().chain(SHARED).map(job(2)).chain(PUT.into_iter().map(job(8))).collect()
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let mut targets = Vec::new();
    let curl = RunSeries::of(runs, BenchPath::SwitchCubic, BenchClient::Curl);
    let of_curl = |series: &RunSeries<'_>| Some(series.time() / curl.as_ref()?.time());
    for (path, _) in ALONE_RUNS {
        let Some(paced) = RunSeries::of(runs, path, PACED) else { continue };
        targets.extend(at_least(
            format!("{path}: 90 % of the bottleneck after the ramp-up"),
            share(&paced),
            0.9,
        ));
        targets.extend(at_most(
            format!("{path}: 0.45x the time of curl from nginx with cubic"),
            of_curl(&paced),
            0.45,
        ));
        targets.extend(burstiness(runs, path, &paced));
        targets.extend(retransmits(runs, path, &paced));
    }
    let path = BenchPath::SwitchCubic;
    if let Some(received) = RunSeries::of(runs, path, SEVERAL) {
        let asked = format!("{path}, from nginx, by several streams: 0.7x curl's time");
        targets.extend(at_most(asked, of_curl(&received), 0.7));
    }
    for (path, _) in SHARED {
        let Some(paced) = RunSeries::of(runs, path, PACED) else { continue };
        targets.extend(at_least(
            format!("{path}: 90 % of what is left after the ramp-up"),
            share(&paced),
            0.9,
        ));
        let lost = paced.figure(|run| run.background_loss).map(|loss| loss.median);
        let met =
            |lost| Goal::new(format!("{path}: under 1 % of the others lost"), percent(lost), lost < 0.01);
        targets.extend(lost.map(met));
    }
    for (path, _) in PUT {
        let steady = RunSeries::of(runs, path, BenchClient::Put).and_then(|put| put.steady());
        let share = steady
            .zip(path.spec().payload_rate())
            .map(|(steady, all)| steady.median / all.as_bits_per_sec() as f64);
        targets.extend(at_least(format!("{path}, put: 85 % of the path in steady state"), share, 0.85));
    }
    targets
}

fn share(series: &RunSeries<'_>) -> Option<f64> {
    Some(series.figure(|run| run.left_share)?.median)
}

fn at_least(asked: String, share: Option<f64>, least: f64) -> Option<Goal> {
    share.map(|share| Goal::new(format!("{asked}, at least"), percent(share), share >= least))
}

fn at_most(asked: String, ratio: Option<f64>, most: f64) -> Option<Goal> {
    ratio.map(|ratio| Goal::new(format!("{asked}, at most"), format!("{ratio:.3}x"), ratio <= most))
}

fn burstiness(runs: &[&BenchRun], path: BenchPath, paced: &RunSeries<'_>) -> Option<Goal> {
    let of = |series: &RunSeries<'_>| Some(series.figure(|run| run.burstiness_1ms)?.median);
    let even = of(paced)?;
    let unpaced = RunSeries::of(runs, path, UNPACED).and_then(|unpaced| of(&unpaced));
    let beside = unpaced.map(|peak| format!(" (unpaced {peak:.3})")).unwrap_or_default();
    Some(Goal::new(
        format!("{path}: 1 ms peak over mean at the receiver, paced, within 1.3"),
        format!("{even:.3}{beside}"),
        even <= 1.3,
    ))
}

fn retransmits(runs: &[&BenchRun], path: BenchPath, paced: &RunSeries<'_>) -> Option<Goal> {
    let of = |series: &RunSeries<'_>| Some(series.figure(|run| run.retransmits)?.median);
    let (paced, unpaced) = (of(paced)?, of(&RunSeries::of(runs, path, UNPACED)?)?);
    Some(Goal::new(
        format!("{path}: under 1 % of the retransmits of the unpaced run"),
        format!("{paced:.0} of {unpaced:.0}"),
        paced < 0.01 * unpaced,
    ))
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let mut text = String::new();
    for (path, clients) in ALONE_RUNS.into_iter().chain(SHARED).chain(PUT) {
        let row = |client: &BenchClient| Some(row(&RunSeries::of(runs, path, *client)?, *client));
        let rows: Vec<_> = clients.iter().filter_map(row).collect();
        if !rows.is_empty() {
            let _ = writeln!(
                text,
                "## {path}, tuned hosts, disk to disk\n\n{}",
                markdown_table::markdown(&ICDC_COLUMNS, &rows)
            );
        }
    }
    if !text.is_empty() {
        text.push_str(ICDC_NOTES);
    }
    text
}

const ICDC_COLUMNS: [&str; 9] = [
    "client",
    "time, s: median (least to largest)",
    "goodput, Mbit/s",
    "of what is left after the ramp-up, %",
    "sent again",
    "dropped",
    "1 ms peak / mean",
    "1 ms p99 / mean",
    "others lost, %",
];

const ICDC_NOTES: &str = "What is left is what payload can reach (1448 of each packet's 1500 bytes) of the path's rate, less the \
    others' traffic (Poisson, packets of 1500 bytes; a step at 8 s and one at 16 s). The ramp-up ends with the first whole second that has 90 % of it, or of the best \
    second's share; all that came from then to the last byte counts, and what waited behind a lost packet when that arrives. Sent again is the sender's own count, dropped what met a full \
    queue. Peak, 99th percentile and mean are the receiver's, recorded each millisecond: a link or a receiver of this machine \
    that is once 1 ms late makes a peak of twice the mean.\n\n";

fn row(series: &RunSeries<'_>, client: BenchClient) -> Vec<String> {
    let figure = |of: fn(&BenchRun) -> Option<f64>, scale: f64, digits| {
        let scaled = |Spread { median, min, max }: Spread| Spread {
            median: median * scale,
            min: min * scale,
            max: max * scale,
        };
        markdown_table::spread(series.figure(of).map(scaled), digits)
    };
    vec![
        client.to_string(),
        figure(|run| Some(run.wall_s), 1.0, 1),
        figure(|run| Some(run.goodput().as_bits_per_sec() as f64), 1e-6, 0),
        figure(|run| run.left_share, 100.0, 1),
        figure(|run| run.retransmits, 1.0, 0),
        figure(|run| Some(run.dropped as f64), 1.0, 0),
        figure(|run| run.burstiness_1ms, 1.0, 2),
        figure(|run| run.mostly_1ms, 1.0, 2),
        figure(|run| run.background_loss, 100.0, 2),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_streams_from_nginx_are_held_to_curl() {
        let path = BenchPath::SwitchCubic;
        for (seconds, expected) in [(36.0, "0.450x yes"), (57.0, "0.713x **no**")] {
            let run = |client, wall_s| BenchRun::timed(path, client, Bytes::gib(2), wall_s);
            let runs = [run(SEVERAL, seconds), run(BenchClient::Curl, 80.0)];
            let runs: Vec<_> = runs.iter().collect();
            assert_eq!(Goal::measured(&targets(&runs)), [expected]);
            assert!(targets(&runs[..1]).is_empty(), "without curl there is nothing to beat");
        }
        assert!(jobs()[0].clients.contains(&SEVERAL));
    }
}
