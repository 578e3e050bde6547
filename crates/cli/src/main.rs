//! The `longhaul` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod commands {
    pub(crate) mod lab;
}

/// Moves large files across long fat networks as fast as the path allows.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Lab(commands::lab::LabArgs),
}

fn main() -> ExitCode {
    let Command::Lab(args) = Cli::parse().command;
    match commands::lab::run(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("longhaul: {error:#}");
            ExitCode::FAILURE
        }
    }
}
