//! `longhaul`: moves large files across long fat networks as fast as the path allows.

mod cli;
mod client_args;
mod commands;
mod config_file;
mod connect_args;
mod exit;
mod foreign_options;
mod interrupt;
mod json;
mod line_queue;
mod login_args;
mod many_files;
mod password;
mod progress;
mod record;
mod request_args;
mod results;
mod say;
mod secret_file;
mod session;
mod stderr;
mod stdout;
mod streams_args;
mod summary;
mod transfer_args;
mod url_text;
mod values;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use longhaul_core::failure::FailureKind;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};
use progress::Drawing;
use stderr::{ServerLog, Stderr};

fn main() -> ExitCode {
    let words = match config_file::with_config(std::env::args_os().collect(), &Cli::command()) {
        Ok(words) => words,
        Err(error) => return exit::said(&error, error.kind),
    };
    let is_get = words.iter().any(|word| word == "get");
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; a failure to print them is ignored.
            let error = if is_get { foreign_options::with_hint(error) } else { error };
            let printed = error.print();
            if error.use_stderr() {
                return exit::of(FailureKind::Usage).into();
            }
            stdout::note(printed.and_then(|()| stdout::open()?.flush()));
            return with_stdout(ExitCode::SUCCESS);
        }
    };
    let _log = log_to_stderr(&cli);
    let result = match cli.command {
        Command::Get(args) => commands::get::run(&args),
        Command::Put(args) => commands::put::run(&args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Agent(args) => commands::agent::run(&args),
        Command::Queue(args) => commands::queue::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Work(args) => commands::work::run(&args),
        Command::Slurm(args) => commands::slurm::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Probe(args) => commands::probe::run(&args),
        Command::Lab(args) => commands::lab::run(args),
        Command::Report(args) => commands::report::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Browser(args) => commands::browser::run(&args),
        Command::Config(args) => commands::config::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args),
    };
    with_stdout(result.unwrap_or_else(|error| exit::said(say::chain(&error), exit::of_chain(&error))))
}

/// Returns the exit code of a command: if `code` is success but stdout could not be written, an I/O
/// error.
fn with_stdout(code: ExitCode) -> ExitCode {
    let Some(failure) = stdout::failure() else { return code };
    say::error(format_args!(
        "cannot write to standard output: {failure}; free some space or write elsewhere"
    ));
    if code == ExitCode::SUCCESS { exit::of(FailureKind::Disk).into() } else { code }
}

/// Sends the log to stderr: with timestamps for a server, without for other commands. Servers and
/// transfers write it on a thread, which has written the remaining lines when the result is
/// dropped.
fn log_to_stderr(cli: &Cli) -> Option<Stderr> {
    let filter = EnvFilter::try_from_env("LONGHAUL_LOG").unwrap_or_else(|_| EnvFilter::new(cli.log_level()));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Reports of internal errors also go to stderr, and panic if it is closed.
        .log_internal_errors(false)
        .with_ansi(stderr::has_colours())
        .with_target(false)
        .with_writer(|| stderr::LogWriter);
    if matches!(cli.command, Command::Serve(_) | Command::Agent(_)) {
        // Before the log's thread begins. An agent may run programs that need privileges.
        let is_server = matches!(cli.command, Command::Serve(_));
        let forbidden = is_server.then(longhaul_server::forbid_new_privileges).transpose();
        let thread = stderr::start(ServerLog::default());
        log.init();
        if let Err(error) = forbidden {
            tracing::warn!(%error, "programs that the server runs could get more privileges than it has");
        }
        return Some(thread);
    }
    log.without_time().init();
    let has_thread = matches!(cli.command, Command::Get(_) | Command::Put(_) | Command::Work(_));
    has_thread.then(|| stderr::start(Drawing::default()))
}
