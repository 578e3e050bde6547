//! Twelve cells of the pacing grid in real time: `longhaul put` to `longhaul serve`, `--pace auto` and `off` in turns.
//!
//! Each file takes 20 s at the path's rate; all cells take less than 20 minutes. A machine of two cores cannot emulate
//! a queue below 5 ms of line time; the shortest queue has 8 ms.

use std::fmt::Write;
use std::time::Duration;

use longhaul_core::pace::Pace;
use longhaul_core::units::Bytes;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::clients::BenchClient;
use crate::grid_path::{GridPath, GridQueue};
use crate::markdown_table::{self, markdown};
use crate::pacing_goals::{PacedPath, goals};
use crate::paths::BenchPath;
use crate::report::Goal;
use crate::run_series::RunSeries;

const AUTO: BenchClient = BenchClient::PutPaced(Pace::Auto);
const OFF: BenchClient = BenchClient::PutPaced(Pace::Off);
/// Time of a transfer at the path's rate.
const IDEAL: Duration = Duration::from_secs(20);
const SEGMENT: Bytes = Bytes::new(1500);

const CELLS: [GridPath; 12] = [
    cell(100, 100, GridQueue::Millis(8)),
    cell(100, 300, GridQueue::Millis(8)),
    cell(100, 300, GridQueue::BdpPercent(100)),
    cell(1_000, 20, GridQueue::Millis(8)),
    cell(1_000, 100, GridQueue::Millis(8)),
    cell(1_000, 200, GridQueue::Millis(8)),
    cell(1_000, 300, GridQueue::Millis(8)),
    cell(1_000, 100, GridQueue::BdpPercent(10)),
    cell(1_000, 300, GridQueue::BdpPercent(10)),
    cell(1_000, 200, GridQueue::BdpPercent(100)),
    cell(3_000, 100, GridQueue::Millis(8)),
    cell(3_000, 200, GridQueue::BdpPercent(100)),
];

const fn cell(mbit: u64, rtt_ms: u64, queue: GridQueue) -> GridPath {
    GridPath { mbit, rtt_ms, queue }
}

/// Returns the jobs.
pub(crate) fn jobs() -> Vec<BenchJob> {
    let job = |cell: GridPath| BenchJob {
        is_at_most: true,
        ..BenchJob::new(BenchPath::Grid(cell), &[AUTO, OFF], cell.bytes_in(IDEAL, SEGMENT))
    };
    CELLS.map(job).into()
}

/// Returns the goals, and whether the runs met them.
pub(crate) fn targets(runs: &[&BenchRun]) -> Vec<Goal> {
    let paced = |cell| Some(CellRuns::of(runs, cell)?.paced(cell));
    let measured: Vec<_> = CELLS.into_iter().filter_map(paced).collect();
    let grid = format!("pacing grid, {} cells in real time", measured.len());
    goals(&grid, &measured)
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(runs: &[&BenchRun]) -> String {
    let rows: Vec<_> =
        CELLS.into_iter().filter_map(|cell| Some(CellRuns::of(runs, cell)?.row(cell))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "path",
        "auto, s",
        "off, s",
        "auto / off",
        "retransmits: auto",
        "off",
        "dropped: auto",
        "off",
        "runs (marked)",
    ];
    let mut text = String::new();
    let _ = writeln!(
        text,
        "## The pacing grid in real time, tuned hosts, cubic: put to longhaul serve, {} s worth of each path\n\n{}",
        IDEAL.as_secs(),
        markdown(&head, &rows)
    );
    text
}

/// The runs of one cell.
struct CellRuns<'a> {
    auto: RunSeries<'a>,
    off: RunSeries<'a>,
}

impl<'a> CellRuns<'a> {
    /// Returns the runs of a cell; `None` unless both clients have run.
    fn of(runs: &[&'a BenchRun], cell: GridPath) -> Option<Self> {
        let series = |client| RunSeries::of(runs, BenchPath::Grid(cell), client);
        Some(Self { auto: series(AUTO)?, off: series(OFF)? })
    }

    fn ratio(&self) -> f64 {
        self.auto.time() / self.off.time()
    }

    fn paced(&self, path: GridPath) -> PacedPath {
        let of = |series: &RunSeries<'_>| Some(series.figure(|run| run.retransmits)?.median);
        let retransmits = of(&self.auto).zip(of(&self.off)).map(|(auto, off)| [auto, off]);
        PacedPath { path, time: self.ratio(), retransmits }
    }

    fn row(&self, cell: GridPath) -> Vec<String> {
        let figure = |series: &RunSeries<'_>, of: fn(&BenchRun) -> Option<f64>, digits| {
            markdown_table::spread(series.figure(of), digits)
        };
        let both = |of: fn(&BenchRun) -> Option<f64>, digits| {
            [figure(&self.auto, of, digits), figure(&self.off, of, digits)]
        };
        let mut row = vec![cell.to_string()];
        row.extend(both(|run| Some(run.wall_s), 1));
        row.push(format!("{:.2}", self.ratio()));
        row.extend(both(|run| run.retransmits, 0));
        row.extend(both(|run| Some(run.dropped as f64), 0));
        row.push(format!("{}, {}", self.auto.counted(), self.off.counted()));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_queues_that_this_kind_of_machine_holds() {
        let worth = jobs().into_iter().map(|job| {
            let BenchPath::Grid(cell) = job.path else { panic!("{:?}", job.path) };
            job.path.spec().validate().unwrap();
            assert!(cell.queue_time() >= Duration::from_millis(8), "{cell}");
            cell.rate().time_for(job.size)
        });
        // Both clients; an unpaced one needs up to three times as long (docs/pacing.md).
        let all: Duration = worth.sum();
        assert!(all * 4 < Duration::from_mins(25), "{all:?}");
    }

    #[test]
    fn auto_is_held_to_off_in_the_median_and_in_the_worst_cell() {
        let timed =
            |cell, client, wall_s| BenchRun::timed(BenchPath::Grid(cell), client, Bytes::new(1), wall_s);
        let run = |cell, client, wall_s| BenchRun { retransmits: Some(5.0), ..timed(cell, client, wall_s) };
        let runs = [
            run(CELLS[0], AUTO, 20.0),
            run(CELLS[0], OFF, 40.0),
            run(CELLS[1], AUTO, 30.0),
            run(CELLS[1], OFF, 20.0),
            run(CELLS[2], AUTO, 20.0),
        ];
        let runs: Vec<_> = runs.iter().collect();
        let met = ["1.000x yes", "1.500x **no**", "1.000x **no**", "10 of 10 **no**"];
        assert_eq!(Goal::measured(&targets(&runs)), met, "the cell without off counts in none");
        assert!(section(&runs).contains("queue 8 ms | 20.0 | 40.0 | 0.50 | 5 | 5 | 0 | 0 | 1 (0), 1 (0) |"));
        assert!(targets(&[]).is_empty() && section(&runs[..1]).is_empty());
    }
}
