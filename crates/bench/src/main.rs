//! Measures longhaul beside its peers: the parts that need a lab are
//! [scenarios](../../../scenarios), the others simulate.
//!
//! [`bench_part`] lists the parts. [`apt_figures`] and [`pacing_grid`] simulate; [`splice`] is a
//! client of `scenarios/buffers.toml`; [`convergence`] judges the results of
//! `scenarios/streams-paper.toml`.

mod apt_figures;
mod bench_part;
mod convergence;
mod pacing_grid;
mod splice;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use bench_part::BenchPart;

/// The repository in which this program was built.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Measure longhaul beside its peers, on emulated and simulated paths. Emulated ones need root, or
/// user namespaces.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    helper: Option<Helper>,
}

#[derive(Debug, Args)]
struct Options {
    /// Measure only this; several with commas between them [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<BenchPart>,

    /// How often each client runs on each path; and each point of apt-figures, with other random
    /// numbers
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Simulate only: a seventh of the pacing grid, and the smallest file of apt-figures once. The
    /// figures mean nothing
    #[arg(long, conflicts_with = "repetitions")]
    quick: bool,

    /// Where the results go; the disk under it is what is measured [default: target/bench]
    ///
    /// A benchmark replaces the results of an earlier one.
    #[arg(long)]
    dir: Option<PathBuf>,

    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    longhaul: Option<PathBuf>,

    /// Further options of `longhaul lab run`, after `--`; a scenario states its short form: --set
    /// size=1G
    #[arg(last = true)]
    lab: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Helper {
    /// Fetch a file by splice(2), which longhaul does not offer
    #[command(hide = true)]
    Splice { server: SocketAddr, path: String, file: PathBuf },
    /// Say when the clients of scenarios/streams-paper.toml had converged
    Converged {
        /// The results' directory
        results: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.helper {
        Some(Helper::Splice { server, path, file }) => splice::fetch(server, &path, &file),
        Some(Helper::Converged { results }) => convergence::table(&results).map(|table| print!("{table}")),
        None => bench(&cli.options),
    };
    done.map_or_else(
        |error| {
            eprintln!("longhaul-bench: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn bench(options: &Options) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let beside = program.parent().unwrap_or(&program);
    let dir = options.dir.clone().unwrap_or_else(|| beside.with_file_name("bench"));
    let longhaul = options.longhaul.clone().unwrap_or_else(|| beside.join("longhaul"));
    for part in BenchPart::selected(&options.only) {
        match part {
            BenchPart::PacingSimulated => print!("{}", pacing_grid::measure(&dir, options.quick)?),
            BenchPart::AptFigures => {
                let repetitions = if options.quick { 1 } else { options.repetitions };
                let effort = apt_figures::Effort::new(repetitions, options.quick);
                print!("{}", apt_figures::draw_all(&dir, &effort)?);
            }
            _ if options.quick => {}
            emulated => run(emulated, &longhaul, &dir, options)?,
        }
    }
    Ok(())
}

/// Runs the scenario of a part.
fn run(part: BenchPart, longhaul: &Path, dir: &Path, options: &Options) -> Result<()> {
    let out = dir.join(part.name());
    let mut lab = Command::new(longhaul);
    lab.args(["lab", "run", "--fresh", "--repeat", &options.repetitions.to_string(), "--out"]).arg(&out);
    lab.args(&options.lab).arg(part.scenario());
    let status = lab.status().with_context(|| {
        format!("cannot run {}; cargo build --release -p longhaul makes it", longhaul.display())
    })?;
    ensure!(status.success(), "{} failed", part.name());
    if part == BenchPart::StreamsPaper {
        print!("{}", convergence::table(&out)?);
    }
    Ok(())
}
