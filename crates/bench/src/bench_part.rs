//! The parts of the benchmark, each of which can be run by itself.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::ROOT;

/// A part of the benchmark: the scenario of this name, unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchPart {
    /// 10 Gbit/s, RTT 200 ms, cubic and bbr, one stream
    LongPath,
    /// No delay: the disk and the CPU are the limit
    NoDelay,
    /// Total times of `get` and `put` with default options at 10 Gbit/s, RTT 200 ms, in turns with
    /// their peers
    TotalTime,
    /// The second runs of default commands, with the path memory of the first; needs real root
    SecondRuns,
    /// 1,000 files of 100 kB over RTT 100 ms, next to aria2
    SmallFiles,
    /// ICDC's path, 1 Gbit/s, RTT 302 ms, queue 1 MB: pacing, alone and beside others; and
    /// `longhaul put` at 10 Gbit/s
    Icdc,
    /// The number of streams: the four parts that follow
    Streams,
    /// Stock hosts, next to axel, aria2 and curl
    StreamsStock,
    /// Tuned hosts, next to fixed numbers and curl; and the ramp-up
    StreamsTuned,
    /// GridFTP-APT's path, next to APT and fixed numbers
    StreamsPaper,
    /// Four sessions that share a path, next to APT's: apt-fairness-droptail; 17 minutes a
    /// repetition, 25 GB of disk
    StreamsFairness,
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

impl BenchPart {
    /// Returns the selected parts, in the order of measurement; all parts if none is selected.
    pub(crate) fn selected(only: &[Self]) -> Vec<Self> {
        let asked = |part: &&Self| {
            let group = match part {
                Self::StreamsStock | Self::StreamsTuned | Self::StreamsPaper | Self::StreamsFairness => {
                    Self::Streams
                }
                Self::PacingCells | Self::PacingSimulated => Self::PacingGrid,
                part => **part,
            };
            let is_group = matches!(part, Self::Streams | Self::PacingGrid);
            !is_group && (only.is_empty() || only.contains(part) || only.contains(&group))
        };
        Self::value_variants().iter().filter(asked).copied().collect()
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the file of the part's scenario; simulated parts and groups have none.
    pub(crate) fn scenario(self) -> PathBuf {
        let name = match self {
            Self::StreamsFairness => "apt-fairness-droptail".to_owned(),
            other => other.name(),
        };
        Path::new(ROOT).join("scenarios").join(name + ".toml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_for_their_parts_and_emulated_parts_have_scenarios() {
        use BenchPart::*;
        for (parts, selected) in [
            (&[Streams][..], &[StreamsStock, StreamsTuned, StreamsPaper, StreamsFairness][..]),
            (&[StreamsPaper, LongPath], &[LongPath, StreamsPaper]),
            (&[PacingGrid], &[PacingCells, PacingSimulated]),
        ] {
            assert_eq!(BenchPart::selected(parts), selected, "{parts:?}");
        }
        let all = BenchPart::selected(&[]);
        assert_eq!(all.len(), BenchPart::value_variants().len() - 2);
        for part in all {
            let is_simulated = matches!(part, PacingSimulated | AptFigures);
            assert_eq!(part.scenario().exists(), !is_simulated, "{part:?}");
        }
    }
}
