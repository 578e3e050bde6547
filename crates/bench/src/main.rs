//! Measures what longhaul reaches, next to curl and nginx, on the lab's paths.
//!
//! [`measure`] runs one client once, on a lab of its own; [`peers`] are the clients, [`server`] what they
//! talk to, [`paths`] the paths. [`long_path`], [`no_delay`], [`icdc`], [`streams`] and [`buffers`] say what
//! runs how often and make their tables from the runs; [`report`] puts them together. [`apt_figures`] needs
//! no lab: it simulates.

mod apt_figures;
mod buffers;
mod experiments;
mod icdc;
mod left;
mod long_path;
mod machine;
mod measure;
mod nginx;
mod no_delay;
mod paths;
mod peers;
mod report;
mod run;
mod series;
mod server;
mod source_file;
mod steady;
mod stopwatch;
mod streams;
mod table;
mod tcp_memory;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use longhaul_core::units::Bytes;

use experiments::Experiment;
use machine::Machine;
use measure::Workshop;
use report::Report;
use tcp_memory::TcpMemory;

/// Measure longhaul next to curl, against nginx, on emulated paths. Needs root, or user namespaces.
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
    only: Vec<Part>,

    /// How large the file is [default: 8GiB; 2GiB at 1 Gbit/s]
    #[arg(long)]
    size: Option<Bytes>,

    /// How often each client runs on each path; and each point of apt-figures, with other random numbers
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Only try whether everything works: 1 GiB, once. Its figures mean nothing
    #[arg(long, conflicts_with_all = ["size", "repetitions"])]
    quick: bool,

    /// Where the files and the report go; the disk under it is what is measured [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,

    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    longhaul: Option<PathBuf>,
}

/// What can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 10 Gbit/s, RTT 200 ms, cubic and bbr
    LongPath,
    /// ICDC's path, 1 Gbit/s, RTT 302 ms, queue 1 MB: pacing, alone and beside others; and `longhaul put` at 10 Gbit/s
    Icdc,
    /// The number of streams: stock hosts, the ramp-up, GridFTP-APT's path
    Streams,
    /// No delay: the disk and the CPU are the limit
    NoDelay,
    /// The ways of receiving and writing, for docs/buffers.md
    Buffers,
    /// The figures of GridFTP-APT's paper, simulated: apt-*.svg and apt-figures.md in --dir
    AptFigures,
}

/// What this program is when it runs on a lab's near host.
#[derive(Debug, Subcommand)]
enum Helper {
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
        Some(Helper::Stopwatch { result, command }) => stopwatch::run(&result, &command),
        Some(Helper::Experiment { experiment, server, path, file }) => {
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
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let beside = program.parent().unwrap_or(&program);
    let dir = options.dir.clone().unwrap_or_else(|| beside.with_file_name("bench"));
    if options.only == [Part::AptFigures] {
        return draw_apt_figures(&dir, options);
    }
    // Before any thread is started: the kernel demands it.
    longhaul_lab::gain_privilege()?;
    let (size, repetitions) =
        if options.quick { (Some(Bytes::gib(1)), 1) } else { (options.size, options.repetitions) };
    let longhaul = options.longhaul.clone().unwrap_or_else(|| beside.join("longhaul"));

    let workshop = Workshop::open(&dir, &longhaul, &program)?;
    let mut report = Report::new(Machine::describe(&dir)?, repetitions);
    let parts: [(Part, Vec<measure::Job>); 5] = [
        (Part::LongPath, long_path::jobs()),
        (Part::NoDelay, no_delay::jobs()),
        (Part::Icdc, icdc::jobs()),
        (Part::Streams, streams::jobs()),
        (Part::Buffers, buffers::jobs()),
    ];
    let mut jobs: Vec<_> =
        parts.into_iter().filter(|(part, _)| wanted(*part)).flat_map(|(_, jobs)| jobs).collect();
    if let Some(size) = size {
        jobs.iter_mut().for_each(|job| job.size = size);
    }
    let tcp_memory = TcpMemory::raise()?;
    let measured = measure_all(&workshop, &jobs, &mut report, repetitions, &dir);
    drop(tcp_memory);
    print!("{}", report.markdown());
    measured?;
    if wanted(Part::AptFigures) { draw_apt_figures(&dir, options) } else { Ok(()) }
}

fn draw_apt_figures(dir: &Path, options: &Options) -> Result<()> {
    let runs = if options.quick { 1 } else { options.repetitions };
    print!("{}", apt_figures::draw_all(dir, &apt_figures::Effort::new(runs, options.quick))?);
    Ok(())
}

/// Runs each job's clients in turn, so that what changes on the machine meanwhile meets them all alike.
///
/// The report in `dir` is complete after each.
fn measure_all(
    workshop: &Workshop,
    jobs: &[measure::Job],
    report: &mut Report,
    repetitions: u32,
    dir: &Path,
) -> Result<()> {
    for job in jobs {
        let source = workshop.source(job.size)?;
        for repetition in 1..=repetitions {
            for &client in &job.clients {
                let run = workshop
                    .run(job, client, repetition, &source)
                    .with_context(|| format!("{}, {client}, repetition {repetition}", job.path))?;
                eprintln!("bench: {run}");
                report.add(run);
                report.write(dir)?;
            }
        }
    }
    Ok(())
}
