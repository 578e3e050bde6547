//! `longhaul plan`: cuts a transfer into units for many workers, and shows how far they are.

mod check;
mod limit;
mod local;
mod make;
mod show;
mod sources;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_farm::budget::DEFAULT_CONNECTIONS;
use longhaul_farm::plan::Plan;
use longhaul_farm::plan_writer::MAX_UNIT_FILES;
use longhaul_farm::shared_dir;

use crate::client_args::ClientArgs;
use crate::{interrupt, stdout, values};

/// Operands and options of `plan`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "longhaul plan [OPTIONS] -o <PLAN> <SOURCE>... <TARGET>\n       longhaul plan <COMMAND> <PLAN>"
)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    command: Option<PlanCommand>,

    /// The files: URLs of http, https, ftp, ftps or gsiftp, or local paths; then the directory that
    /// receives them, or the URL of one
    ///
    /// Every worker must see local files and directories by these paths. Local files are copied
    /// into a directory, or uploaded to a URL; files of a server are fetched into a directory. A
    /// URL must hold no login: give it to each worker.
    #[arg(required = true, value_name = "SOURCE... TARGET", value_hint = ValueHint::AnyPath)]
    operands: Vec<PathBuf>,

    /// Write the plan to this directory, which is made; every worker must see it
    #[arg(short, long, required = true, value_name = "PLAN", value_hint = ValueHint::DirPath, help_heading = "Plan")]
    output: Option<PathBuf>,

    /// Plan the files of a list too, one URL a line, or from stdin (-)
    ///
    /// The format is that of get -i: indented lines below a URL hold out=PATH below the target,
    /// size=SIZE and checksum=ALG=HEX. What is given there is demanded of the file. file:///PATH
    /// names a local file. dir= and header= are refused.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Plan")]
    input: Option<PathBuf>,

    /// Plan directories with all below them, as get -r and put -r list them; of several sources,
    /// each gets a directory of its name
    #[arg(short, long, help_heading = "Plan")]
    recursive: bool,

    #[command(flatten)]
    units: UnitArgs,

    /// Limit all workers together to this rate, or HOST=RATE what they move from or to one host;
    /// may be given several times
    ///
    /// Workers share it out by need. longhaul plan limit changes it while they run.
    #[arg(long, value_name = "[HOST=]RATE", value_parser = limit::rate, help_heading = "Plan")]
    farm_limit: Vec<limit::RateOf>,

    /// Open at most this many connections to each host, all workers together
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Plan")]
    farm_connections: u32,

    #[command(flatten)]
    client: ClientArgs,
}

/// How files are cut into units, and when those of a lost worker are given to others.
#[derive(Debug, Args)]
struct UnitArgs {
    /// End a unit with the file that reaches this size
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = Bytes::with_unit, help_heading = "Plan")]
    unit_size: Bytes,

    /// Put at most this many files into a unit
    #[arg(long, value_name = "N", default_value_t = MAX_UNIT_FILES, value_parser = unit_files, help_heading = "Plan")]
    unit_files: usize,

    /// Give the units of a worker to others when it has been silent for this time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease, help_heading = "Plan")]
    lease: Duration,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Show what is done, under way and failed, and why
    Status {
        #[command(flatten)]
        plan: PlanPath,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the limits of all workers together, or change them while they run
    Limit(limit::LimitArgs),
    /// Let workers try failed units again
    Retry(PlanPath),
    /// Compare the files of the target with the sizes and checksums of the plan; of a server, with
    /// the sizes that it states
    Verify {
        #[command(flatten)]
        plan: PlanPath,
        #[command(flatten)]
        client: Box<ClientArgs>,
    },
    /// Print the SHA-256 of all files, as sha256sum -c reads it in the target; of uploads, that of
    /// their sources
    Manifest(PlanPath),
}

/// The operand of a plan.
#[derive(Debug, Args)]
struct PlanPath {
    /// The plan
    #[arg(value_name = "PLAN", value_hint = ValueHint::DirPath)]
    path: PathBuf,
}

fn unit_files(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(files @ 1..=MAX_UNIT_FILES) => Ok(files),
        _ => Err(format!("write a number from 1 to {MAX_UNIT_FILES}")),
    }
}

/// The shortest lease: heartbeats are a fifth of it apart, and each is synced to a shared disk.
const MIN_LEASE: Duration = Duration::from_secs(1);
/// The longest lease.
const MAX_LEASE: Duration = Duration::from_secs(24 * 3600);

fn lease(text: &str) -> Result<Duration, String> {
    match values::time(text)? {
        lease if (MIN_LEASE..=MAX_LEASE).contains(&lease) => Ok(lease),
        _ => Err("write a time from 1s to 24h, as 30s".into()),
    }
}

/// Prints the state of a plan.
pub(crate) fn show_status(plan: &Path) -> anyhow::Result<ExitCode> {
    show::status(plan, false)
}

/// Writes a plan, or shows one.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let cancel = Cancel::new();
    match &args.command {
        None => make::run(args),
        Some(PlanCommand::Status { plan, json }) => show::status(&plan.path, *json),
        Some(PlanCommand::Limit(args)) => limit::run(args),
        Some(PlanCommand::Retry(plan)) => {
            let units = shared_dir::retry(&Plan::open(&plan.path)?)?;
            let unit = if units == 1 { "unit is" } else { "units are" };
            stdout::line(format_args!(
                "{units} failed {unit} tried again: longhaul work {}",
                plan.path.display()
            ));
            Ok(ExitCode::SUCCESS)
        }
        Some(PlanCommand::Verify { plan, client }) => {
            let cancel = client.connect.cancel();
            interrupt::listen(&cancel)?;
            check::verify(&Plan::open(&plan.path)?, client, &cancel)
        }
        Some(PlanCommand::Manifest(plan)) => {
            interrupt::listen(&cancel)?;
            check::manifest(&Plan::open(&plan.path)?, &cancel)
        }
    }
}
