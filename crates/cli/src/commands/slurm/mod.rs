//! `longhaul slurm`: the workers of a plan as an array job of Slurm.
//!
//! ```text
//!  submit --> PLAN/slurm/job.sh --> sbatch --> its number in PLAN/slurm/jobs --> status (squeue, sacct), cancel (scancel)
//! ```
//!
//! A job has a name with the plan's id: a number alone may be that of a later job of others.

mod jobs;
mod script;
mod submit;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueHint};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_farm::plan::Plan;

use jobs::SlurmJobs;
use submit::{SubmitArgs, submit};

use crate::commands::plan;
use crate::stdout;

/// The commands of `slurm`.
#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    command: SlurmCommand,
}

#[derive(Debug, Subcommand)]
enum SlurmCommand {
    /// Write PLAN/slurm/job.sh, and submit it as an array job: a worker each task
    ///
    /// A script that is there is submitted as it is; options of the command line then replace those
    /// in it.
    #[command(override_usage = "longhaul slurm submit [OPTIONS] <PLAN> [-- <OPTIONS OF SBATCH>...]")]
    Submit(SubmitArgs),
    /// Show the state of a plan and of its jobs
    Status(PlanPath),
    /// Cancel the jobs of a plan; its workers leave what they have received to later ones
    Cancel(PlanPath),
}

/// The operand of a plan.
#[derive(Debug, Args)]
struct PlanPath {
    /// The plan; every node must see it by this path
    #[arg(value_name = "PLAN", value_hint = ValueHint::DirPath)]
    path: PathBuf,
}

/// Submits the workers of a plan, shows or cancels them.
pub(crate) fn run(args: &SlurmArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        SlurmCommand::Submit(args) => submit(args),
        SlurmCommand::Status(plan) => status(&plan.path),
        SlurmCommand::Cancel(plan) => cancel(&plan.path),
    }
}

/// Makes the failure of an operation on a file, for `map_err`.
fn io_failure(operation: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => FailureKind::Denied,
            io::ErrorKind::AlreadyExists => FailureKind::CannotCreate,
            _ => FailureKind::Disk,
        };
        Failure::new(kind, format!("cannot {operation} {}: {error}", path.display()))
    }
}

fn status(path: &Path) -> anyhow::Result<ExitCode> {
    let plan = Plan::open(path)?;
    // Shown also if Slurm does not answer.
    let code = plan::show_status(path)?;
    let rows = SlurmJobs::of(&plan).rows()?;
    if rows.is_empty() {
        stdout::line("no job of Slurm is known");
    }
    rows.iter().for_each(|row| stdout::line(format_args!("  task {row}")));
    Ok(code)
}

fn cancel(path: &Path) -> anyhow::Result<ExitCode> {
    let plan = Plan::open(path)?;
    match SlurmJobs::of(&plan).cancel()?.as_slice() {
        [] => stdout::line("no job of the plan is queued or running"),
        jobs => stdout::line(format_args!("cancelled: {}", jobs.join(", "))),
    }
    Ok(ExitCode::SUCCESS)
}
