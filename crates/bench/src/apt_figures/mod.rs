//! The figures of the GridFTP-APT paper (Ito, Ohsaki, Imase), simulated in virtual time, with
//! Longhaul's tuner beside APT.
//!
//! [`trial`] is one simulated transfer; [`goodput`], [`sweep`] and [`course`] combine trials into
//! figures.

mod course;
mod goodput;
mod statistics;
mod sweep;
mod trial;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::Bytes;
use longhaul_lab::Aqm;
use longhaul_lab::model::RedParameters;
use longhaul_scope::chart::{Chart, Sheet};
use longhaul_scope::draw;

use course::Fairness;
use goodput::Curve;
use sweep::SWEEPS;
use trial::SessionResult;
pub(crate) use trial::on_all_cores;

/// The extent of the simulation.
pub(crate) struct Effort {
    /// Runs of each point, with different seeds.
    runs: u32,
    files: &'static [Bytes],
}

impl Effort {
    /// The file sizes of the paper's figures with `runs` per point; with `is_quick` the smallest
    /// size only.
    pub(crate) const fn new(runs: u32, is_quick: bool) -> Self {
        const FILES: &[Bytes] =
            &[Bytes::new(1_000_000_000), Bytes::new(5_000_000_000), Bytes::new(10_000_000_000)];
        Self { runs, files: if is_quick { FILES.split_at(1).0 } else { FILES } }
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        1..=self.runs.into()
    }

    /// Describes the points of a figure.
    fn note(&self) -> String {
        match self.runs {
            1 => "One run each, seed 1.".to_owned(),
            runs => format!("Means of {runs} runs (seeds 1 to {runs}); bars: 95 % confidence intervals."),
        }
    }
}

/// Notes of all figures: origin, and APT's default parameters.
const NOTES: [&str; 2] = [
    "Virtual time, packet by packet: 100 Mbit/s, 100 packets of queue, TCP Reno with SACK, sockets of 64 KB.",
    "APT, where nothing else is said: N0 = 4, alpha = 2, Delta = 3 s.",
];

/// Draws all figures as `apt-*.svg` into `dir`; writes their tables to `apt-figures.md` and returns
/// them.
///
/// # Errors
/// Names the file that cannot be written.
pub(crate) fn draw_all(dir: &Path, effort: &Effort) -> Result<String> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let begun = Instant::now();
    let draw = |name: &str, title: &str, note: &str, charts: Vec<Chart>| -> Result<()> {
        let notes = NOTES.into_iter().chain([note]).map(str::to_owned).collect();
        let sheet = Sheet { title: title.to_owned(), notes, charts };
        let path = dir.join(format!("{name}.svg"));
        draw::write(&sheet, &path, "--dir").with_context(|| format!("cannot draw {}", path.display()))?;
        eprintln!("bench: {} after {:.0} s", path.display(), begun.elapsed().as_secs_f64());
        Ok(())
    };
    let mut text =
        format!("N is bounded by {MAX_STREAMS}, which the paper does not do; * marks what met that.\n");
    let mut section = |title: &str, table: &str| {
        let _ = write!(text, "\n## {title}\n\n{table}");
    };

    let curves = [10, 50].map(|millis| Curve::measure(Duration::from_millis(millis), effort));
    let charts = curves.iter().map(Curve::chart).collect();
    draw("apt-goodput", "Goodput by the number of connections", &effort.note(), charts)?;
    section("What the tuners reach with 1 GB", &goodput::table(&curves));
    section("1 GB over a fixed number of connections, Mbit/s", &goodput::curve_table(&curves));
    section("The chunks of APT's first run with 1 GB, tau = 50 ms", &curves[1].chunks());
    for sweep in &SWEEPS {
        let measured = sweep.measure(effort);
        draw(sweep.name, sweep.title, &effort.note(), sweep.charts(&measured))?;
        section(&format!("{}, Mbit/s", sweep.title), &sweep.table(&measured));
    }
    draw("apt-evolution", "A session's course", "One run, seed 1.", course::alone())?;
    let queues = [
        ("apt-fairness-droptail", ("DropTail", Aqm::DropTail), 13),
        ("apt-fairness-red", ("RED", Aqm::Red(RedParameters::default())), 14),
    ];
    let mut all = Vec::new();
    for (name, aqm, figure) in queues {
        let fairness = Fairness::measure(aqm, figure, effort);
        let title = "Four sessions that begin 100 s apart, tau = 10 ms";
        draw(name, title, "One run, seed 1.", fairness.charts())?;
        all.push(fairness);
    }
    section("Four sessions, 400 to 500 s, tau = 10 ms", &course::fairness_table(&all));
    let path = dir.join("apt-figures.md");
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(text)
}

/// Returns a mark for runs that reached the maximum of connections.
fn bounded(reached: impl IntoIterator<Item = SessionResult>) -> &'static str {
    if reached.into_iter().any(|own| own.is_bounded) { "*" } else { "" }
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
