//! `longhaul man DIR`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::cli::Cli;

/// The output directory.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// An existing directory, as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes `longhaul.1` and a page for each subcommand.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<ExitCode> {
    clap_mangen::generate_to(Cli::command(), &args.directory)
        .with_context(|| format!("cannot write the manual pages to {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
