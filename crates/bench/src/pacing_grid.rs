//! `--pace auto` against other senders, on a grid of paths in virtual time.
//!
//! Each transfer takes 30 s at the path's rate. Noise models a busy host: late timers and late
//! acknowledgements. Background traffic has a fifth of the path's rate, from the start or after 10
//! s.

use std::fmt::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use longhaul_core::tune::pace::Pacer;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::model::paced_sender::PacedSender;
use longhaul_lab::scenario::{Spread, markdown_table};
use longhaul_lab::{PathSpec, QueueLimit};

use crate::apt_figures::on_all_cores;

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
/// Places in [`SENDERS`].
const AUTO: usize = 0;
const OFF: usize = 1;
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
    mbit: u64,
    rtt_ms: u64,
    queue: GridQueue,
    conditions: Conditions,
}

/// The length of a path's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GridQueue {
    /// In milliseconds of the path's rate.
    Millis(u64),
    /// In percent of the bandwidth-delay product.
    BdpPercent(u64),
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

/// Returns a sender's times relative to `off`.
fn times_over_off(results: &[(Cell, Transfers)], sender: usize) -> Option<Spread> {
    Spread::of(results.iter().map(|(_, transfers)| transfers[sender].seconds / transfers[OFF].seconds))
}

/// Returns a sender's retransmits on the paths with a queue of a tenth of the BDP or shorter.
fn shallow_retransmits(results: &[(Cell, Transfers)], sender: usize) -> u64 {
    let shallow = results.iter().filter(|(cell, _)| cell.is_shallow());
    shallow.map(|(_, transfers)| transfers[sender].retransmits).sum()
}

/// Returns a row for each sender: its times relative to `off`, and its losses.
fn summary(results: &[(Cell, Transfers)]) -> String {
    let figure = |spread: Option<Spread>, of: fn(Spread) -> f64| {
        spread.map_or_else(String::new, |spread| format!("{:.2}", of(spread)))
    };
    let row = |sender: usize| {
        let times = times_over_off(results, sender);
        let neighbour = Spread::of(results.iter().map(|(_, transfers)| transfers[sender].neighbour * 100.0));
        let [median, worst] = [figure(neighbour, |all| all.median), figure(neighbour, |all| all.max)];
        vec![
            SENDERS[sender].name.to_owned(),
            figure(times, |all| all.median),
            figure(times, |all| all.max),
            format!("{} / {}", shallow_retransmits(results, sender), shallow_retransmits(results, OFF)),
            format!("{median} %, {worst} %"),
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
    let goal = |asked: &str, measured, is_met| {
        let met = if is_met { "yes".to_owned() } else { "**no**".to_owned() };
        vec![format!("{} paths{asked}", results.len()), measured, met]
    };
    let time = |of: &str, time: Option<f64>, most: f64| {
        let asked = format!(": {of} of auto / off at most {most:.2}");
        time.map(|time| goal(&asked, format!("{time:.3}x"), time <= most))
    };
    let with_short_queue: Vec<_> =
        results.iter().filter(|(cell, _)| cell.queue == SHORT_QUEUE).copied().collect();
    let (all, short) = (times_over_off(results, AUTO), times_over_off(&with_short_queue, AUTO));
    let [auto, off] = [AUTO, OFF].map(|sender| shallow_retransmits(results, sender));
    let retransmits = results.iter().any(|(cell, _)| cell.is_shallow()).then(|| {
        let asked = ", queue at most 0.1 BDP: retransmits of auto at most 1 % of off";
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
        let mut row = vec![cell.to_string()];
        row.extend(transfers.iter().map(|transfer| time(*transfer)));
        row.push(format!("{:.2}", transfers[AUTO].seconds / transfers[OFF].seconds));
        let each =
            |figure: fn(&Transfer) -> String| transfers.iter().map(figure).collect::<Vec<_>>().join(", ");
        row.push(each(|transfer| transfer.retransmits.to_string()));
        row.push(match cell.spec(SENDERS[AUTO]).traffic.background.is_none() {
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

fn cells(is_quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for conditions in CONDITIONS {
        for mbit in MBITS {
            for rtt_ms in RTTS_MS {
                cells.extend(QUEUES.map(|queue| Cell { mbit, rtt_ms, queue, conditions }));
            }
        }
    }
    let every = if is_quick { 7 } else { 1 };
    cells.into_iter().step_by(every).collect()
}

impl Cell {
    fn run(self, sender: GridSender) -> Transfer {
        let bytes = self.rate().bytes_in(IDEAL);
        let segments = (bytes.get() / SEGMENT.get()).div_ceil(MAX_PACKETS);
        let packet = SEGMENT * segments;
        let pacer = (sender.pace == GridPace::Auto).then(Pacer::default);
        let mut flow = PacedSender::new(&self.spec(sender), packet, pacer);
        if self.conditions.is_noisy {
            flow = flow.with_noise(SEED);
        }
        if sender.pace == GridPace::Fixed {
            flow = flow.at(self.rate().scaled(FIXED_SHARE));
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
        // A test checks that the background parses.
        let mut spec = PathSpec {
            rate: Some(self.rate()),
            rtt: Rtt::new(Duration::from_millis(self.rtt_ms)),
            queue: Some(QueueLimit::Bytes(self.rate().bytes_in(self.queue_time()))),
            ..PathSpec::default()
        };
        spec.traffic.background = self.conditions.background.parse().unwrap_or_default();
        spec.ends.congestion = sender.congestion.to_owned();
        spec
    }

    fn rate(self) -> Rate {
        Rate::bits_per_sec(self.mbit * 1_000_000)
    }

    /// Returns the length of the queue at the path's rate.
    fn queue_time(self) -> Duration {
        match self.queue {
            GridQueue::Millis(millis) => Duration::from_millis(millis),
            GridQueue::BdpPercent(percent) => Duration::from_micros(self.rtt_ms * percent * 10),
        }
    }

    /// Returns whether the queue is a tenth of the BDP or shorter.
    fn is_shallow(self) -> bool {
        self.queue_time() * 10 <= Duration::from_millis(self.rtt_ms)
    }
}

/// Names the path without its conditions.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} ms, queue ", self.rate(), self.rtt_ms)?;
        match self.queue {
            GridQueue::Millis(millis) => write!(f, "{millis} ms"),
            GridQueue::BdpPercent(percent) => write!(f, "{} BDP", percent as f64 / 100.0),
        }
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
            cell.spec(SENDERS[AUTO]).validate().unwrap();
            let is_beside = cell.conditions.name.starts_with("Beside");
            assert_eq!(!cell.spec(SENDERS[AUTO]).traffic.background.is_none(), is_beside, "{cell:?}");
        }
        assert_eq!([SENDERS[AUTO].name, SENDERS[OFF].name], ["auto", "off"]);
    }

    #[test]
    fn queue_is_what_it_is_named() {
        let queues = [
            (GridQueue::Millis(8), 1_000_000, false, "1.00 Gbit/s, 20 ms, queue 8 ms"),
            (GridQueue::BdpPercent(10), 250_000, true, "1.00 Gbit/s, 20 ms, queue 0.1 BDP"),
            (GridQueue::BdpPercent(100), 2_500_000, false, "1.00 Gbit/s, 20 ms, queue 1 BDP"),
        ];
        for (queue, bytes, is_shallow, name) in queues {
            let cell = Cell { mbit: 1000, rtt_ms: 20, queue, conditions: CONDITIONS[0] };
            assert_eq!(cell.spec(SENDERS[OFF]).queue, Some(QueueLimit::Bytes(Bytes::new(bytes))), "{cell}");
            assert_eq!((cell.is_shallow(), cell.to_string()), (is_shallow, name.to_owned()));
        }
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
            (Cell { mbit: 100, rtt_ms: 100, queue, conditions: CONDITIONS[0] }, transfers)
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
        let mut transfers = [transfer(60.0); SENDERS.len()];
        transfers[0] = Transfer { retransmits: 0, ..transfer(30.0) };
        transfers[2] = transfer(300.0);
        let queue = GridQueue::BdpPercent(10);
        let cell = Cell { mbit: 100, rtt_ms: 100, queue, conditions: CONDITIONS[2] };
        let text = format!("{}{}", summary(&[(cell, transfers)]), table(&[(cell, transfers)]));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("| auto | 0.50 | 0.50 | 0 / 7 | 1.00 %, 1.00 % |"), "{text}");
        let row = "| 30.0 | 60.0 | over 300 | 60.0 | 60.0 | 0.50 | 0, 7, 7, 7, 7 |";
        assert!(text.contains(row), "{text}");
    }
}
