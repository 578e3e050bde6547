//! `--pace auto` against other senders, on a grid of paths in virtual time.
//!
//! Each transfer takes 30 s at the path's rate. Noise models a busy host: late timers and late acknowledgements.
//! Background traffic has a fifth of the path's rate, from the start or after 10 s.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use longhaul_core::tune::pace::Pacer;
use longhaul_core::units::Bytes;
use longhaul_lab::PathSpec;
use longhaul_lab::model::paced_sender::PacedSender;
use longhaul_lab::scenario::{Spread, markdown_table};

use crate::apt_figures::on_all_cores;
use crate::grid_path::{GridPath, GridQueue};

const MBITS: [u64; 4] = [100, 1_000, 3_000, 10_000];
const RTTS_MS: [u64; 4] = [20, 100, 200, 300];
/// The queue behind which `auto` must be twice as fast as `off`.
const SHORT_QUEUE: GridQueue = GridQueue::Millis(8);
const QUEUES: [GridQueue; 3] = [SHORT_QUEUE, GridQueue::BdpPercent(10), GridQueue::BdpPercent(100)];
const CONDITIONS: [Conditions; 4] = [
    Conditions { name: "Alone", background: "0%", is_noisy: false },
    Conditions { name: "On a busy host", background: "0%", is_noisy: true },
    Conditions { name: "Beside traffic of a fifth of the path", background: "20%@0s", is_noisy: false },
    Conditions {
        name: "Beside traffic of a fifth of the path that comes after 10 s",
        background: "20%@10s",
        is_noisy: false,
    },
];
const SENDERS: [GridSender; 5] = [
    GridSender { name: "auto", pace: GridPace::Auto, congestion: "cubic" },
    GridSender { name: "off", pace: GridPace::Off, congestion: "cubic" },
    GridSender { name: "95 %", pace: GridPace::Fixed, congestion: "cubic" },
    GridSender { name: "bbr", pace: GridPace::Off, congestion: "bbr" },
    GridSender { name: "auto, bbr", pace: GridPace::Auto, congestion: "bbr" },
];
/// Time of a transfer at the path's rate.
const IDEAL: Duration = Duration::from_secs(30);
/// Maximum time of a transfer.
const END: Duration = Duration::from_secs(300);
/// Maximum packets of a transfer; beyond it each packet is a burst of several segments.
const MAX_PACKETS: u64 = 2_500_000;
const SEGMENT: Bytes = Bytes::new(1500);
/// The fixed pace as a share of the path's rate.
const FIXED_SHARE: f64 = 0.95;
const SEED: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Conditions {
    name: &'static str,
    /// The specification of the background traffic.
    background: &'static str,
    is_noisy: bool,
}

/// A sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GridSender {
    name: &'static str,
    pace: GridPace,
    congestion: &'static str,
}

/// Longhaul's pace of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GridPace {
    Auto,
    Off,
    Fixed,
}

/// A path with its disturbances.
#[derive(Debug, Clone, Copy)]
struct Cell {
    path: GridPath,
    conditions: Conditions,
}

/// The result of a transfer.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    seconds: f64,
    /// Retransmitted segments.
    retransmits: u64,
    /// Share of the background's packets that were dropped.
    neighbour: f64,
}

/// The transfers of [`SENDERS`] over a cell's path.
type Transfers = [Transfer; SENDERS.len()];

/// Runs the grid, writes its tables to `pacing-grid.md` in `dir`, and returns them.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn measure(dir: &Path, is_quick: bool) -> Result<String> {
    let cells = cells(is_quick);
    let results = on_all_cores(&cells, |cell| SENDERS.map(|sender| cell.run(sender)));
    let results: Vec<_> = cells.into_iter().zip(results).collect();
    let mut text = String::from("# The pacing grid, in virtual time\n\n");
    for conditions in CONDITIONS {
        let of: Vec<_> = results.iter().filter(|(cell, _)| cell.conditions == conditions).copied().collect();
        let goals = markdown_table(&["asked", "measured", "met"], &asked(&of));
        let _ = writeln!(text, "## {}\n\n{}\n{goals}\n{}", conditions.name, summary(&of), table(&of));
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let file = dir.join("pacing-grid.md");
    std::fs::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(text)
}

/// Returns a row for each sender: its times relative to `off`, and its losses.
fn summary(results: &[(Cell, Transfers)]) -> String {
    let row = |index: usize| {
        let over_off = |(_, transfers): &(Cell, Transfers)| transfers[index].seconds / off(transfers).seconds;
        let times = Spread::of(results.iter().map(over_off));
        let shallow = |of: fn(&Transfers, usize) -> u64| -> u64 {
            let is_shallow = |(cell, _): &&(Cell, Transfers)| cell.path.is_shallow();
            results.iter().filter(is_shallow).map(|(_, transfers)| of(transfers, index)).sum()
        };
        let (lost, lost_off) = (
            shallow(|transfers, index| transfers[index].retransmits),
            shallow(|transfers, _| off(transfers).retransmits),
        );
        let neighbour = Spread::of(results.iter().map(|(_, transfers)| transfers[index].neighbour * 100.0));
        let spread = |of: fn(&Spread) -> f64, spread: &Option<Spread>, digits: usize| {
            spread.as_ref().map_or_else(String::new, |spread| format!("{:.digits$}", of(spread)))
        };
        vec![
            SENDERS[index].name.to_owned(),
            spread(|spread| spread.median, &times, 2),
            spread(|spread| spread.max, &times, 2),
            format!("{lost} / {lost_off}"),
            format!(
                "{} %, {} %",
                spread(|spread| spread.median, &neighbour, 2),
                spread(|spread| spread.max, &neighbour, 2)
            ),
        ]
    };
    let head = [
        "sender",
        "time / off: median",
        "worst",
        "retransmits / off, queue <= 0.1 BDP",
        "neighbour's loss: median, worst",
    ];
    markdown_table(&head, &(0..SENDERS.len()).map(row).collect::<Vec<_>>())
}

/// Returns a row for each goal of `auto`; none without paths.
fn asked(results: &[(Cell, Transfers)]) -> Vec<Vec<String>> {
    let goal = |asked: String, measured, is_met| {
        vec![asked, measured, if is_met { "yes".to_owned() } else { "**no**".to_owned() }]
    };
    let times = |is_meant: fn(&GridPath) -> bool| {
        let meant = results.iter().filter(|(cell, _)| is_meant(&cell.path));
        Spread::of(meant.map(|(_, transfers)| transfers[0].seconds / off(transfers).seconds))
    };
    let time = |of: &str, time: Option<f64>, most: f64| {
        let asked = format!("{} paths: {of} of auto / off at most {most:.2}", results.len());
        time.map(|time| goal(asked, format!("{time:.3}x"), time <= most))
    };
    let (all, short) = (times(|_| true), times(|path| path.queue == SHORT_QUEUE));
    let shallow: Vec<_> = results.iter().filter(|(cell, _)| cell.path.is_shallow()).collect();
    let lost =
        |sender: usize| shallow.iter().map(|(_, transfers)| transfers[sender].retransmits).sum::<u64>();
    let (auto, off) = (lost(0), lost(1));
    let retransmits = (!shallow.is_empty()).then(|| {
        let asked =
            format!("{} paths, queue at most 0.1 BDP: retransmits of auto at most 1 % of off", results.len());
        goal(asked, format!("{auto} of {off}"), auto * 100 <= off)
    });
    let goals = [
        time("median", all.map(|all| all.median), 1.03),
        time("worst", all.map(|all| all.max), 1.10),
        time("median with a queue of 8 ms", short.map(|short| short.median), 0.5),
        retransmits,
    ];
    goals.into_iter().flatten().collect()
}

/// Returns a row for each path.
fn table(results: &[(Cell, Transfers)]) -> String {
    let row = |(cell, transfers): &(Cell, Transfers)| {
        let mut row = vec![cell.path.to_string()];
        row.extend(transfers.iter().map(|transfer| time(*transfer)));
        row.push(format!("{:.2}", transfers[0].seconds / off(transfers).seconds));
        let each =
            |figure: fn(&Transfer) -> String| transfers.iter().map(figure).collect::<Vec<_>>().join(", ");
        row.push(each(|transfer| transfer.retransmits.to_string()));
        row.push(match cell.spec(SENDERS[0]).traffic.background.is_none() {
            true => "-".to_owned(),
            false => each(|transfer| format!("{:.2}", transfer.neighbour * 100.0)),
        });
        row
    };
    let mut head = vec!["path".to_owned()];
    head.extend(SENDERS.iter().map(|sender| format!("{}, s", sender.name)));
    head.extend(["auto / off", "retransmits of each", "neighbour's loss, %"].map(str::to_owned));
    let head: Vec<_> = head.iter().map(String::as_str).collect();
    markdown_table(&head, &results.iter().map(row).collect::<Vec<_>>())
}

/// Returns the transfer of the unpaced sender.
fn off(transfers: &Transfers) -> Transfer {
    transfers[1]
}

fn cells(is_quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for conditions in CONDITIONS {
        for mbit in MBITS {
            for rtt_ms in RTTS_MS {
                cells.extend(QUEUES.map(|queue| Cell { path: GridPath { mbit, rtt_ms, queue }, conditions }));
            }
        }
    }
    let every = if is_quick { 7 } else { 1 };
    cells.into_iter().step_by(every).collect()
}

impl Cell {
    fn run(self, sender: GridSender) -> Transfer {
        let bytes = self.path.bytes_in(IDEAL, SEGMENT);
        let segments = (bytes.get() / SEGMENT.get()).div_ceil(MAX_PACKETS);
        let packet = SEGMENT * segments;
        let pacer = (sender.pace == GridPace::Auto).then(Pacer::default);
        let mut flow = PacedSender::new(&self.spec(sender), packet, pacer);
        if self.conditions.is_noisy {
            flow = flow.with_noise(SEED);
        }
        if sender.pace == GridPace::Fixed {
            flow = flow.at(self.path.rate().scaled(FIXED_SHARE));
        }
        let time = flow.run_packets(bytes.get() / packet.get(), END);
        let background = flow.background();
        Transfer {
            seconds: time.as_secs_f64(),
            retransmits: flow.counts().lost * segments,
            neighbour: background.lost as f64 / background.offered.max(1) as f64,
        }
    }

    fn spec(self, sender: GridSender) -> PathSpec {
        let mut spec = self.path.spec();
        // A test checks that it parses.
        spec.traffic.background = self.conditions.background.parse().unwrap_or_default();
        spec.ends.congestion = sender.congestion.to_owned();
        spec
    }
}

/// Formats the time; "over" the maximum for an incomplete transfer.
fn time(transfer: Transfer) -> String {
    let end = END.as_secs_f64();
    if transfer.seconds < end { format!("{:.1}", transfer.seconds) } else { format!("over {end:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_has_every_path_under_every_condition() {
        let cells = cells(false);
        assert_eq!(cells.len(), 4 * 4 * 3 * 4);
        for cell in &cells {
            cell.spec(SENDERS[0]).validate().unwrap();
            let is_beside = cell.conditions.name.starts_with("Beside");
            assert_eq!(!cell.spec(SENDERS[0]).traffic.background.is_none(), is_beside, "{cell:?}");
        }
        assert_eq!(SENDERS[1].name, "off", "the sender that the others are compared with");
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<_> = (0..100).collect();
        assert_eq!(on_all_cores(&items, |item| item * 2), (0..200).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn auto_is_held_to_off_in_time_and_in_retransmits() {
        let result = |queue, auto, retransmits: [u64; 2]| {
            let transfer = |seconds, retransmits| Transfer { seconds, retransmits, neighbour: 0.0 };
            let mut transfers = [transfer(100.0, retransmits[1]); SENDERS.len()];
            transfers[0] = transfer(auto, retransmits[0]);
            let path = GridPath { mbit: 100, rtt_ms: 100, queue };
            (Cell { path, conditions: CONDITIONS[0] }, transfers)
        };
        let results = [
            result(GridQueue::Millis(8), 60.0, [2, 100]),
            result(GridQueue::BdpPercent(10), 90.0, [0, 100]),
            result(GridQueue::BdpPercent(100), 120.0, [900, 100]),
        ];
        let measured = |results: &[(Cell, Transfers)]| -> Vec<_> {
            asked(results).into_iter().map(|row| row[1..].join(" ")).collect()
        };
        let met = ["0.900x yes", "1.200x **no**", "0.600x **no**", "2 of 200 yes"];
        assert_eq!(measured(&results), met, "a queue of 1 BDP counts only in the times");
        assert_eq!(measured(&results[2..]), ["1.200x **no**", "1.200x **no**"]);
        assert!(measured(&[]).is_empty());
    }

    #[test]
    fn tables_have_a_row_for_each_sender_and_path() {
        let transfer = |seconds| Transfer { seconds, retransmits: 7, neighbour: 0.01 };
        let path = GridPath { mbit: 100, rtt_ms: 100, queue: GridQueue::BdpPercent(10) };
        let mut transfers = [transfer(60.0); SENDERS.len()];
        transfers[0] = Transfer { retransmits: 0, ..transfer(30.0) };
        transfers[2] = transfer(300.0);
        let cell = Cell { path, conditions: CONDITIONS[2] };
        let text = format!("{}{}", summary(&[(cell, transfers)]), table(&[(cell, transfers)]));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("| auto | 0.50 | 0.50 | 0 / 7 | 1.00 %, 1.00 % |"), "{text}");
        let row = "| 30.0 | 60.0 | over 300 | 60.0 | 60.0 | 0.50 | 0, 7, 7, 7, 7 |";
        assert!(text.contains(row), "{text}");
    }
}
