//! The command line: one definition for parsing, help, man page and completions.

use clap::{Parser, Subcommand};

use crate::commands::{
    agent, browser, completions, config, doctor, explain, get, lab, man, plan, probe, put, queue, report,
    serve, slurm, work,
};

/// Move large files across long fat networks as fast as the path allows
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print more on stderr; twice for much more. LONGHAUL_LOG holds a finer filter
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Ignore ~/.config/longhaul/config.toml; LONGHAUL_NO_CONFIG=1 does so too
    #[arg(long, global = true)]
    no_config: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fetch files over HTTP, FTP or GridFTP, and resume what was interrupted
    Get(Box<get::GetArgs>),
    /// Send files over HTTP, FTP or GridFTP, and resume what was interrupted where the server can
    #[command(override_usage = "longhaul put [OPTIONS] <PATH>... <URL>")]
    Put(Box<put::PutArgs>),
    /// Serve a directory over HTTP or HTTPS, made for large files
    Serve(Box<serve::ServeArgs>),
    /// Run a queue of transfers in the background, with a dashboard for the browser
    Agent(agent::AgentArgs),
    /// Add transfers to the queue in the background, and control them
    Queue(queue::QueueArgs),
    /// Plan a transfer for many workers, on one host or many, and show how far they are
    Plan(Box<plan::PlanArgs>),
    /// Execute the units of a plan until none is left
    Work(Box<work::WorkArgs>),
    /// Give the workers of a plan to Slurm, and show or cancel them
    Slurm(slurm::SlurmArgs),
    /// Check what on this host would slow a transfer, and print the fix
    Doctor(doctor::DoctorArgs),
    /// Measure the path to a server, and name the setting that makes it faster
    Probe(Box<probe::ProbeArgs>),
    /// Emulate a long fat network on this machine, with real kernel TCP at both ends
    Lab(lab::LabArgs),
    /// Draw records of transfers: buffers, throughput, windows and losses over time
    Report(report::ReportArgs),
    /// Explain what limited a transfer: from its record, from a packet capture of any program, or
    /// live
    Explain(explain::ExplainArgs),
    /// Connect Firefox and Chromium with Longhaul: a click on a large download
    Browser(browser::BrowserArgs),
    /// Show the options of commands, and whether config.toml sets them
    Config(config::ConfigArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual pages into a directory
    Man(man::ManArgs),
}

impl Cli {
    /// Returns the log level for the flags.
    pub(crate) fn log_level(&self) -> &'static str {
        match (self.verbose, &self.command) {
            // A server's log is its access log.
            (0, Command::Serve(_)) => "info",
            (0, Command::Get(args)) if args.transfer.quiet => "error",
            (0, Command::Put(args)) if args.transfer.quiet => "error",
            (0, Command::Work(args)) if args.transfer.quiet => "error",
            (0, _) => "warn",
            (1, _) => "info",
            _ => "debug",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Cli::command().debug_assert();
    }
}
