//! The figures of GridFTP-APT's paper (Ito, Ohsaki, Imase), drawn anew in virtual time, with Longhaul's own tuner beside APT.
//!
//! [`trial`] is one simulated transfer; [`goodput`], [`sweep`] and [`course`] say which of them make a figure.

mod course;
mod goodput;
mod sweep;
mod trial;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;
use longhaul_lab::Aqm;
use longhaul_lab::model::RedParameters;
use longhaul_lab::scenario::Spread;
use longhaul_scope::chart::{Chart, Sheet};
use longhaul_scope::draw;

use course::Fairness;
use goodput::Curve;
use sweep::SWEEPS;

/// How much is simulated.
pub(crate) struct Effort {
    /// How often each point, each time with other random numbers.
    seeds: u64,
    files: &'static [Bytes],
}

impl Effort {
    /// What the paper's figures show; or the smallest file, once.
    pub(crate) const fn new(is_quick: bool) -> Self {
        const FILES: &[Bytes] =
            &[Bytes::new(1_000_000_000), Bytes::new(5_000_000_000), Bytes::new(10_000_000_000)];
        if is_quick { Self { seeds: 1, files: FILES.split_at(1).0 } } else { Self { seeds: 5, files: FILES } }
    }
}

/// Draws all figures as `apt-*.svg` into `dir`, and writes and returns their tables, `apt-figures.md`.
///
/// # Errors
/// Names the file that cannot be written.
pub(crate) fn draw_all(dir: &Path, effort: &Effort) -> Result<String> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let begun = Instant::now();
    let draw = |name: &str, title: &str, charts: Vec<Chart>| -> Result<()> {
        let note = "Virtual time: 100 Mbit/s, 100 packets of queue, TCP Reno with selective acknowledgements, 64 KB sockets.";
        let sheet = Sheet { title: title.to_owned(), notes: vec![note.to_owned()], charts };
        let path = dir.join(format!("{name}.svg"));
        draw::write(&sheet, &path).with_context(|| format!("cannot draw {}", path.display()))?;
        eprintln!("bench: {} after {:.0} s", path.display(), begun.elapsed().as_secs_f64());
        Ok(())
    };
    let mut text = String::new();
    let mut section = |title: &str, table: &str| {
        let _ = write!(text, "## {title}\n\n{table}\n");
    };

    let curves = [10, 50].map(|delay_ms| Curve::measure(delay_ms, effort));
    draw("apt-goodput", "Goodput by the number of connections", curves.iter().map(Curve::chart).collect())?;
    section("What the tuners reach with 1 GB", &goodput::table(&curves));
    for sweep in &SWEEPS {
        let measured = sweep.measure(effort);
        draw(sweep.name, sweep.title, sweep.charts(&measured))?;
        section(&format!("{}, Mbit/s", sweep.title), &sweep.table(&measured));
    }
    draw("apt-evolution", "A session's course", course::alone())?;
    let queues = [
        ("apt-fairness-droptail", ("DropTail", Aqm::DropTail), 13),
        ("apt-fairness-red", ("RED", Aqm::Red(RedParameters::default())), 14),
    ];
    let mut all = Vec::new();
    for (name, aqm, figure) in queues {
        let fairness = Fairness::measure(aqm, figure, effort);
        draw(name, "Four sessions that begin 100 s apart, tau = 10 ms", fairness.charts())?;
        all.push(fairness);
    }
    section("Four sessions, the last 100 s of 600 s, tau = 10 ms", &course::fairness_table(&all));
    let path = dir.join("apt-figures.md");
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(text)
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}
