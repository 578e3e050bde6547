//! `--pace auto` next to `off` and to a fixed rate, over a grid of paths in virtual time.
//!
//! Each transfer takes 30 s at the path's rate. The sender is CUBIC's; BBR is not simulated. The noise is that of a busy host:
//! late timers and late acknowledgements. A neighbour is random traffic of a fifth of the path, which is there from the start.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use longhaul_core::tune::pace::Pacer;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::model::paced_sender::PacedSender;
use longhaul_lab::scenario::Spread;
use longhaul_lab::{PathSpec, QueueLimit};

use crate::markdown_table::markdown;

const MBITS: [u64; 4] = [100, 1_000, 3_000, 10_000];
const RTTS_MS: [u64; 4] = [20, 100, 200, 300];
const QUEUES: [Queue; 3] = [Queue::Time(Duration::from_millis(8)), Queue::Bdp(0.1), Queue::Bdp(1.0)];
/// What a transfer takes at the path's rate.
const IDEAL: Duration = Duration::from_secs(30);
/// A transfer that takes longer ends here.
const END: Duration = Duration::from_secs(300);
/// Packets of a transfer: larger ones where there would be more.
const MOST_PACKETS: u64 = 2_500_000;
const ETHERNET: Bytes = Bytes::new(1500);
/// The fixed rate, of the path's.
const FIXED_SHARE: f64 = 0.95;
const SEED: u64 = 1;

#[derive(Debug, Clone, Copy)]
enum Queue {
    Time(Duration),
    Bdp(f64),
}

#[derive(Debug, Clone, Copy)]
enum Conditions {
    Clean,
    Noise,
    Neighbour,
}

#[derive(Debug, Clone, Copy)]
enum Sender {
    Auto,
    /// The same, but slow start is never restarted.
    WithoutRestarts,
    Off,
    Fixed,
}

/// A path, and what disturbs the transfer.
#[derive(Debug, Clone, Copy)]
struct Cell {
    rate: Rate,
    rtt: Rtt,
    queue: Queue,
    conditions: Conditions,
}

/// What a transfer came to.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    seconds: f64,
    retransmits: u64,
    /// The share of the neighbour's packets that were dropped.
    neighbour: f64,
}

/// Runs the grid, writes its table to `pacing-grid.md` in `dir`, and returns it.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn measure(dir: &Path, is_quick: bool) -> Result<String> {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for cell in cells(is_quick) {
        let senders = [Sender::Auto, Sender::WithoutRestarts, Sender::Off, Sender::Fixed];
        let [auto, without, off, fixed] = senders.map(|sender| cell.run(sender));
        let ratio = auto.seconds / off.seconds;
        ratios.push(ratio);
        eprintln!("bench: {cell}: {ratio:.2}");
        let neighbour = match cell.conditions {
            Conditions::Neighbour => {
                format!("{:.2} %, {:.2} %", auto.neighbour * 100.0, off.neighbour * 100.0)
            }
            Conditions::Clean | Conditions::Noise => "-".to_owned(),
        };
        rows.push(vec![
            cell.to_string(),
            time(auto),
            time(without),
            time(off),
            time(fixed),
            format!("{ratio:.2}"),
            format!("{}, {}", auto.retransmits, off.retransmits),
            neighbour,
        ]);
    }
    let head = [
        "path",
        "auto, s",
        "without restarts, s",
        "off, s",
        "95 %, s",
        "auto / off",
        "retransmits",
        "neighbour's loss",
    ];
    let summary = Spread::of(ratios).map_or_else(String::new, |Spread { median, max, .. }| {
        format!("auto / off: median {median:.3}, worst {max:.3}.\n")
    });
    let text = format!("{}\n{summary}", markdown(&head, &rows));
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let file = dir.join("pacing-grid.md");
    std::fs::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(text)
}

fn cells(is_quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for conditions in [Conditions::Clean, Conditions::Noise, Conditions::Neighbour] {
        for mbit in MBITS {
            for rtt in RTTS_MS {
                for queue in QUEUES {
                    let rate = Rate::bits_per_sec(mbit * 1_000_000);
                    let rtt = Rtt::new(Duration::from_millis(rtt));
                    cells.push(Cell { rate, rtt, queue, conditions });
                }
            }
        }
    }
    let every = if is_quick { 7 } else { 1 };
    cells.into_iter().step_by(every).collect()
}

impl Cell {
    fn run(self, sender: Sender) -> Transfer {
        let bytes = self.rate.bytes_in(IDEAL);
        let packet = Bytes::new(bytes.get() / MOST_PACKETS).max(ETHERNET);
        let is_auto = matches!(sender, Sender::Auto | Sender::WithoutRestarts);
        let pacer = is_auto.then(Pacer::default);
        let mut flow = PacedSender::new(&self.spec(), packet, pacer);
        if matches!(self.conditions, Conditions::Noise) {
            flow = flow.with_noise(SEED);
        }
        flow = match sender {
            Sender::Auto | Sender::Off => flow,
            Sender::WithoutRestarts => flow.without_restarts(),
            Sender::Fixed => flow.at(self.rate.scaled(FIXED_SHARE)),
        };
        let time = flow.run_packets(bytes.get() / packet.get(), END);
        let totals = flow.totals();
        Transfer {
            seconds: time.as_secs_f64(),
            retransmits: totals.lost,
            neighbour: totals.background.lost as f64 / totals.background.offered.max(1) as f64,
        }
    }

    fn spec(self) -> PathSpec {
        let queue = match self.queue {
            Queue::Time(time) => self.rate.bytes_in(time),
            Queue::Bdp(share) => Bytes::new((self.rate.bdp(self.rtt).get() as f64 * share) as u64),
        };
        let mut spec = PathSpec {
            rate: Some(self.rate),
            rtt: self.rtt,
            queue: Some(QueueLimit::Bytes(queue)),
            ..PathSpec::default()
        };
        if matches!(self.conditions, Conditions::Neighbour)
            && let Ok(background) = "20%@0s".parse()
        {
            spec.background = background;
        }
        spec
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = match self.queue {
            Queue::Time(time) => format!("{} ms", time.as_millis()),
            Queue::Bdp(share) => format!("{share} BDP"),
        };
        let conditions = match self.conditions {
            Conditions::Clean => "",
            Conditions::Noise => ", noise",
            Conditions::Neighbour => ", neighbour",
        };
        write!(f, "{}, {} ms, {queue}{conditions}", self.rate, self.rtt.get().as_millis())
    }
}

/// Returns the time; "over" the end for a transfer that did not reach it.
fn time(transfer: Transfer) -> String {
    let end = END.as_secs_f64();
    if transfer.seconds < end { format!("{:.1}", transfer.seconds) } else { format!("over {end:.0}") }
}
