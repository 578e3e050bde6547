//! `longhaul lab`: commands at the two ends of an emulated path.

mod check;
mod estimate;
mod evidence;
mod exec;
mod path_args;
mod path_report;
mod plots;
mod run;
mod watcher;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Emulate a long fat network on this machine, with the real kernel's TCP at both ends.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    Exec(Box<exec::ExecArgs>),
    Run(run::RunArgs),
    Check(check::CheckArgs),
}

/// Runs `longhaul lab ...`.
///
/// # Errors
/// Fails if the lab cannot be built or a command cannot be started.
pub(crate) fn run(args: LabArgs) -> Result<ExitCode> {
    match args.command {
        LabCommand::Exec(args) => exec::run(*args),
        LabCommand::Run(args) => run::run(args),
        LabCommand::Check(args) => check::run(args),
    }
}
