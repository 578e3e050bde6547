//! Measures longhaul against curl and nginx on the lab's paths.
//!
//! A [`bench_job`] is a set of clients to compare on a path; [`single_run`] runs one client once, on a fresh lab.
//! [`clients`] are the programs that are compared, [`server`] the servers, [`paths`] the emulated paths. [`long_path`],
//! [`no_delay`], [`small_files`], [`icdc`], [`gridftp`], [`streams`], [`pacing_cells`], [`total_time`] and [`buffers`] define the runs of each part and
//! make its tables; [`bench_part`] lists the parts, [`report`] combines their sections. [`apt_figures`] and [`pacing_grid`] simulate, and need no lab.

mod apt_figures;
mod bench_job;
mod bench_part;
mod buffers;
mod clients;
mod convergence;
mod experiments;
mod grid_path;
mod gridftp;
mod icdc;
mod long_path;
mod machine;
mod markdown_table;
mod nginx;
mod no_delay;
mod pacing_cells;
mod pacing_goals;
mod pacing_grid;
mod paths;
mod report;
mod resource_usage;
mod run_result;
mod run_series;
mod server;
mod single_run;
mod small_files;
mod source_file;
mod streams;
mod tcp_memory;
mod total_time;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use longhaul_core::units::Bytes;
use longhaul_lab::scenario::FidelityPolicy;

use bench_part::BenchPart;
use experiments::Experiment;
use machine::Machine;
use report::BenchReport;
use single_run::BenchEnvironment;
use streams::fairness;
use tcp_memory::TcpMemoryLimit;

/// Measure longhaul next to curl, against nginx, on emulated paths. Needs root, or user namespaces.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    helper: Option<LabSubcommand>,
}

#[derive(Debug, Args)]
struct Options {
    /// Measure only this; several with commas between them [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<BenchPart>,

    /// How large the file is [default: 8GiB; 2GiB at 1 Gbit/s, 1 GB on GridFTP-APT's path]
    ///
    /// streams-fairness and apt-figures have files of their own: the former's must outlast its sessions, the latter's are the paper's.
    #[arg(long)]
    size: Option<Bytes>,

    /// How often each client runs on each path; and each point of apt-figures, with other random numbers
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Measure only on paths whose name contains this, as in "100 ms, queue 8 ms" [default: all]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    path: String,

    /// How often a run on a deviating path is repeated
    #[arg(long, value_name = "N", default_value_t = FidelityPolicy::default().retries)]
    retries: u32,

    /// Only check that everything works: 1 GiB, once. The figures mean nothing
    #[arg(long, conflicts_with_all = ["size", "repetitions", "retries"])]
    quick: bool,

    /// Where the files and the report go; the disk under it is what is measured [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,

    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    longhaul: Option<PathBuf>,
}

/// Subcommands for use on a lab's client.
#[derive(Debug, Subcommand)]
enum LabSubcommand {
    /// Run a command; write what it used to a file
    #[command(hide = true)]
    Stopwatch {
        result: PathBuf,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Fetch a file in a way that longhaul does not offer
    #[command(hide = true)]
    Experiment { experiment: Experiment, server: SocketAddr, path: String, file: PathBuf },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.helper {
        Some(LabSubcommand::Stopwatch { result, command }) => resource_usage::run(&result, &command),
        Some(LabSubcommand::Experiment { experiment, server, path, file }) => {
            experiments::run(experiment, server, &path, &file)
        }
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
    let parts = BenchPart::selected(&options.only);
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let beside = program.parent().unwrap_or(&program);
    let dir = options.dir.clone().unwrap_or_else(|| beside.with_file_name("bench"));
    if parts.iter().all(|part| part.is_simulated()) {
        return simulate(&parts, &dir, options);
    }
    // The kernel requires it before the first thread starts.
    longhaul_lab::gain_privilege()?;
    let longhaul = options.longhaul.clone().unwrap_or_else(|| beside.join("longhaul"));
    let workshop = BenchEnvironment::open(&dir, &longhaul, &program)?;
    let repetitions = if options.quick { 1 } else { options.repetitions };
    let mut report = BenchReport::new(Machine::describe(&dir)?, repetitions);
    let tcp_memory = TcpMemoryLimit::raise()?;
    let measured = parts.iter().try_for_each(|part| match part {
        BenchPart::StreamsFairness => share_a_path(&workshop, &mut report, options.quick, repetitions),
        _ => measure_all(&workshop, *part, &mut report, options, repetitions),
    });
    drop(tcp_memory);
    print!("{}", report.markdown());
    measured?;
    simulate(&parts, &dir, options)
}

/// Runs the simulated parts.
fn simulate(parts: &[BenchPart], dir: &Path, options: &Options) -> Result<()> {
    if parts.contains(&BenchPart::PacingSimulated) {
        print!("{}", pacing_grid::measure(dir, options.quick)?);
    }
    if parts.contains(&BenchPart::AptFigures) { draw_apt_figures(dir, options) } else { Ok(()) }
}

impl Options {
    /// Returns the requested file size.
    fn size(&self) -> Option<Bytes> {
        if self.quick { Some(Bytes::gib(1)) } else { self.size }
    }
}

fn draw_apt_figures(dir: &Path, options: &Options) -> Result<()> {
    let runs = if options.quick { 1 } else { options.repetitions };
    print!("{}", apt_figures::draw_all(dir, &apt_figures::Effort::new(runs, options.quick))?);
    Ok(())
}

/// Runs the clients of a part's jobs in turns, so that drift of the machine affects all of them equally.
///
/// The report is complete after each run.
fn measure_all(
    workshop: &BenchEnvironment,
    part: BenchPart,
    report: &mut BenchReport,
    options: &Options,
    repetitions: u32,
) -> Result<()> {
    let jobs = part.jobs().into_iter().filter(|job| job.path.to_string().contains(&options.path));
    for mut job in jobs {
        if let Some(size) = options.size() {
            job.resize(size);
        }
        let source = workshop.source(job.size, job.files)?;
        for repetition in 1..=repetitions {
            for &client in &job.clients {
                let what = || format!("{}, {client}, repetition {repetition}", job.path);
                let mut left = if options.quick { 0 } else { options.retries };
                let run = loop {
                    let run = workshop.run(part, &job, client, repetition, &source).with_context(what)?;
                    eprintln!("bench: {run}");
                    if run.warnings.is_empty() || left == 0 {
                        break run;
                    }
                    left -= 1;
                };
                report.add(run);
                report.write(&workshop.dir)?;
            }
        }
    }
    Ok(())
}

/// Runs the sessions that share a path; the report is complete after each repetition.
fn share_a_path(
    workshop: &BenchEnvironment,
    report: &mut BenchReport,
    is_quick: bool,
    repetitions: u32,
) -> Result<()> {
    for repetition in 1..=repetitions {
        let sessions = fairness::run(&workshop.longhaul, &workshop.dir, repetition, is_quick)?;
        report.add_sessions(sessions);
        report.write(&workshop.dir)?;
    }
    Ok(())
}
