//! Measures longhaul against curl and nginx on the lab's paths.
//!
//! A [`bench_job`] is a set of clients to compare on a path; [`bench_environment`] makes a scenario of it, which the
//! lab's runner executes for a [`planned_job`].
//! [`clients`] are the programs that are compared, [`server`] the servers, [`paths`] the emulated paths. [`long_path`],
//! [`no_delay`], [`small_files`], [`icdc`], [`gridftp`], [`streams`], [`pacing_cells`], [`total_time`], [`second_runs`] and [`buffers`] define the runs of each part and
//! make its tables; [`bench_part`] lists the parts, [`report`] combines their sections. [`apt_figures`] and [`pacing_grid`] simulate, and need no lab.

mod apt_figures;
mod bench_environment;
mod bench_job;
mod bench_part;
mod bench_run;
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
mod planned_job;
mod report;
mod run_series;
mod second_runs;
mod server;
mod small_files;
mod source_file;
mod stopwatch;
mod streams;
mod tcp_memory;
mod total_time;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use longhaul_core::units::Bytes;
use longhaul_lab::scenario::{FidelityPolicy, Selection};

use bench_environment::BenchEnvironment;
use bench_job::BenchJob;
use bench_part::BenchPart;
use experiments::Experiment;
use machine::Machine;
use planned_job::PlannedJob;
use report::BenchReport;
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
    ///
    /// A benchmark replaces the results of an earlier one.
    #[arg(long)]
    dir: Option<PathBuf>,

    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    longhaul: Option<PathBuf>,
}

/// Subcommands for use on a lab's client.
#[derive(Debug, Subcommand)]
enum LabSubcommand {
    /// Run a command, and print what it used
    #[command(hide = true)]
    Stopwatch {
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
        Some(LabSubcommand::Stopwatch { command }) => stopwatch::run(&command),
        Some(LabSubcommand::Experiment { experiment, server, path, file }) => {
            experiments::run(experiment, server, &path, &file).map(|()| ExitCode::SUCCESS)
        }
        None => bench(&cli.options).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("longhaul-bench: {error:#}");
        ExitCode::FAILURE
    })
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
    let environment = BenchEnvironment::open(&dir, &longhaul, &program)?;
    let mut report = BenchReport::new(Machine::describe(&dir)?, options.repetitions());
    let tcp_memory = TcpMemoryLimit::raise()?;
    let measured = measure_all(&environment, &parts, &mut report, options);
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

    fn repetitions(&self) -> u32 {
        if self.quick { 1 } else { self.repetitions }
    }

    /// Returns the jobs of a part on the requested paths.
    fn plan(&self, environment: &BenchEnvironment, part: BenchPart) -> Result<Vec<PlannedJob>> {
        let open = |name: &str, job: Option<BenchJob>, scenario| {
            let selection = Selection { repeat: NonZeroU32::new(self.repetitions()), ..Selection::default() };
            let fidelity =
                FidelityPolicy { retries: if self.quick { 0 } else { self.retries }, is_strict: false };
            PlannedJob::open(environment, name, part, job, scenario, selection, fidelity)
        };
        if part == BenchPart::StreamsFairness {
            return Ok(vec![open(&part.name(), None, fairness::scenario(self.quick)?)?]);
        }
        let jobs = (1..).zip(part.jobs());
        let jobs = jobs.filter(|(_, job)| job.path.to_string().contains(&self.path));
        let planned = |(number, mut job): (u32, BenchJob)| {
            if let Some(size) = self.size() {
                job.resize(size);
            }
            let name = format!("{}-{number}", part.name());
            let scenario = environment.scenario(&name, &job)?;
            open(&name, Some(job), scenario)
        };
        jobs.map(planned).collect()
    }
}

fn draw_apt_figures(dir: &Path, options: &Options) -> Result<()> {
    let effort = apt_figures::Effort::new(options.repetitions(), options.quick);
    print!("{}", apt_figures::draw_all(dir, &effort)?);
    Ok(())
}

/// Runs the jobs of all parts.
///
/// The report is complete after each run.
fn measure_all(
    environment: &BenchEnvironment,
    parts: &[BenchPart],
    report: &mut BenchReport,
    options: &Options,
) -> Result<()> {
    let mut jobs = Vec::new();
    for part in parts {
        jobs.extend(options.plan(environment, *part)?);
    }
    jobs.iter_mut().try_for_each(|job| job.run(environment, report))
}
