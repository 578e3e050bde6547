//! The parts of the benchmark, each of which can be run by itself.

use clap::ValueEnum;
use serde::Serialize;

use crate::bench_job::BenchJob;
use crate::bench_run::BenchRun;
use crate::report::Goal;
use crate::streams::{paper, stock, tuned};
use crate::{
    buffers, gridftp, icdc, long_path, no_delay, pacing_cells, second_runs, small_files, total_time,
};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BenchPart {
    /// 10 Gbit/s, RTT 200 ms, cubic and bbr, one stream
    LongPath,
    /// ICDC's path, 1 Gbit/s, RTT 302 ms, queue 1 MB: pacing, alone and beside others; and `longhaul put` at 10 Gbit/s
    Icdc,
    /// The number of streams: the four parts that follow
    Streams,
    /// Stock hosts, next to axel, aria2 and curl
    StreamsStock,
    /// Tuned hosts, next to fixed numbers and curl; and the ramp-up
    StreamsTuned,
    /// GridFTP-APT's path, next to APT and fixed numbers
    StreamsPaper,
    /// Four sessions that share a path, next to APT's; takes 17 minutes a repetition and 25 GB of disk
    StreamsFairness,
    /// Total times of `get` and `put` with default options at 10 Gbit/s, RTT 200 ms, in turns with their peers
    TotalTime,
    /// The second runs of default commands, with the path memory of the first
    SecondRuns,
    /// 1,000 files of 100 kB over RTT 100 ms, next to aria2
    SmallFiles,
    /// No delay: the disk and the CPU are the limit
    NoDelay,
    /// GridFTP from the Globus server, next to globus-url-copy and HTTP; needs real root
    Gridftp,
    /// The ways of receiving and writing, for docs/measurements.md
    Buffers,
    /// `--pace` over rates, RTTs and queues: the two parts that follow
    PacingGrid,
    /// Twelve cells in real time: put to serve; less than 20 minutes a repetition, 15 GB of memory
    PacingCells,
    /// All cells in virtual time: pacing-grid.md in --dir
    PacingSimulated,
    /// The figures of GridFTP-APT's paper, simulated: apt-*.svg and apt-figures.md in --dir
    AptFigures,
}

/// The parts that [`BenchPart::Streams`] includes.
const STREAMS: [BenchPart; 4] =
    [BenchPart::StreamsStock, BenchPart::StreamsTuned, BenchPart::StreamsPaper, BenchPart::StreamsFairness];

/// The parts that [`BenchPart::PacingGrid`] includes.
const PACING_GRID: [BenchPart; 2] = [BenchPart::PacingCells, BenchPart::PacingSimulated];

impl BenchPart {
    /// All parts, in the order of measurement.
    pub(crate) const ALL: [Self; 15] = [
        Self::LongPath,
        Self::NoDelay,
        Self::TotalTime,
        Self::SecondRuns,
        Self::SmallFiles,
        Self::Icdc,
        STREAMS[0],
        STREAMS[1],
        STREAMS[2],
        STREAMS[3],
        Self::Gridftp,
        Self::Buffers,
        PACING_GRID[0],
        PACING_GRID[1],
        Self::AptFigures,
    ];

    /// Returns the selected parts; all parts if none is selected.
    pub(crate) fn selected(only: &[Self]) -> Vec<Self> {
        let asked = |part: &Self| {
            only.is_empty()
                || only.contains(part)
                || (only.contains(&Self::Streams) && STREAMS.contains(part))
                || (only.contains(&Self::PacingGrid) && PACING_GRID.contains(part))
        };
        Self::ALL.into_iter().filter(asked).collect()
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns whether the part runs in virtual time: it needs neither privilege nor a quiet machine.
    pub(crate) fn is_simulated(self) -> bool {
        matches!(self, Self::PacingSimulated | Self::AptFigures)
    }

    /// Returns the jobs that the part compares.
    pub(crate) fn jobs(self) -> Vec<BenchJob> {
        match self {
            Self::LongPath => long_path::jobs(),
            Self::NoDelay => no_delay::jobs(),
            Self::Icdc => icdc::jobs(),
            Self::StreamsStock => stock::jobs(),
            Self::StreamsTuned => tuned::jobs(),
            Self::StreamsPaper => paper::jobs(),
            Self::TotalTime => total_time::jobs(),
            Self::SecondRuns => second_runs::jobs(),
            Self::SmallFiles => small_files::jobs(),
            Self::Gridftp => gridftp::jobs(),
            Self::Buffers => buffers::jobs(),
            Self::PacingCells => pacing_cells::jobs(),
            Self::Streams
            | Self::StreamsFairness
            | Self::PacingGrid
            | Self::PacingSimulated
            | Self::AptFigures => Vec::new(),
        }
    }

    /// Returns the goals of the part, and whether its runs met them.
    pub(crate) fn targets(self, runs: &[&BenchRun]) -> Vec<Goal> {
        match self {
            Self::LongPath => long_path::targets(runs),
            Self::NoDelay => no_delay::targets(runs),
            Self::Icdc => icdc::targets(runs),
            Self::StreamsStock => stock::targets(runs),
            Self::StreamsTuned => tuned::targets(runs),
            Self::StreamsPaper => paper::targets(runs),
            Self::TotalTime => total_time::targets(runs),
            Self::SecondRuns => second_runs::targets(runs),
            Self::SmallFiles => small_files::targets(runs),
            Self::Gridftp => gridftp::targets(runs),
            Self::PacingCells => pacing_cells::targets(runs),
            Self::Buffers
            | Self::Streams
            | Self::StreamsFairness
            | Self::PacingGrid
            | Self::PacingSimulated
            | Self::AptFigures => Vec::new(),
        }
    }

    /// Returns the part's section of the report; empty without runs.
    pub(crate) fn section(self, runs: &[&BenchRun]) -> String {
        match self {
            Self::LongPath => long_path::section(runs),
            Self::NoDelay => no_delay::section(runs),
            Self::Icdc => icdc::section(runs),
            Self::StreamsStock => stock::section(runs),
            Self::StreamsTuned => tuned::section(runs),
            Self::StreamsPaper => paper::section(runs),
            Self::TotalTime => total_time::section(runs),
            Self::SecondRuns => second_runs::section(runs),
            Self::SmallFiles => small_files::section(runs),
            Self::Gridftp => gridftp::section(runs),
            Self::Buffers => buffers::section(runs),
            Self::PacingCells => pacing_cells::section(runs),
            Self::Streams
            | Self::StreamsFairness
            | Self::PacingGrid
            | Self::PacingSimulated
            | Self::AptFigures => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_stands_for_its_parts() {
        use BenchPart::*;
        for (parts, selected) in [
            (&[Streams][..], &STREAMS[..]),
            (&[Streams, StreamsPaper], &STREAMS),
            (&[StreamsPaper, LongPath], &[LongPath, StreamsPaper]),
            (&[PacingGrid], &PACING_GRID),
            (&[], &BenchPart::ALL),
        ] {
            assert_eq!(BenchPart::selected(parts), selected, "{parts:?}");
        }
        // Every part except groups is measured.
        for part in BenchPart::value_variants() {
            let is_group = matches!(part, BenchPart::Streams | BenchPart::PacingGrid);
            assert_eq!(BenchPart::ALL.contains(part), !is_group, "{part:?}");
        }
    }
}
