//! `longhaul lab exec`: a command at each end of an emulated path.

use std::io::{ErrorKind, IsTerminal};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use longhaul_core::failure::FailureKind;
use longhaul_lab::{Lab, LabError, ObservationOptions, Process, ServerCommand};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{exit, say, stdout};

use super::evidence;
use super::path_args::PathArgs;
use super::path_report::PathReport;

/// A second Ctrl-C within this time kills a command on a terminal: the command itself may act on
/// the first one.
const TERMINAL_AGAIN: Duration = Duration::from_secs(2);

/// Run a command on the client of an emulated path, and another on its server.
///
/// Both hosts resolve the names `client` and `server`. LAB_CLIENT and LAB_SERVER hold their IPv4
/// addresses, LAB_CLIENT6 and LAB_SERVER6 their IPv6 addresses. The exit status is the command's,
/// or 127 if it is not found and 126 if it cannot be executed. All processes end with it. SIGINT,
/// SIGTERM and SIGHUP are passed on to the command; a second one kills it.
#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    path: PathArgs,

    /// Run this shell command on the server until the client's command ends
    #[arg(long, alias = "far", value_name = "CMD")]
    server: Option<String>,

    /// Start the client's command once the server's listens at this TCP port
    #[arg(long, alias = "far-port", value_name = "PORT", requires = "server", value_parser = clap::value_parser!(u16).range(1..))]
    server_port: Option<u16>,

    /// Write what the client sends and receives to a capture: headers of IP packets, super-packets
    /// as such
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pcap: Option<PathBuf>,

    /// Write what the server sends and receives to another capture: headers of IP packets,
    /// super-packets as such
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pcap_server: Option<PathBuf>,

    /// Write path.json (flows, and the queues over time) and queue.svg to DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    evidence: Option<PathBuf>,

    /// Print the path's statistics and flows as one line of JSON after the command's output
    #[arg(long)]
    json: bool,

    /// Fail with exit status 75 if this machine did not hold the requested path
    #[arg(long)]
    strict: bool,

    /// The command to run on the client
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs both commands; returns the client command's exit status.
///
/// # Errors
/// Fails if the lab cannot be built or a command cannot be started.
pub(super) fn run(args: ExecArgs) -> Result<ExitCode> {
    // The kernel requires it before the first thread starts.
    longhaul_lab::gain_privilege()?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let watch = ObservationOptions {
        client_pcap: args.pcap,
        server_pcap: args.pcap_server,
        flows_and_queues: args.json || args.evidence.is_some(),
    };
    let spec = args.path.spec()?;
    args.evidence.as_deref().map(evidence::check_place).transpose()?;
    let lab = Lab::observed(spec, &watch)?;
    let start_server = |command: String| ServerCommand::start(&lab.server(), &command, |_| Ok(()));
    let mut server = args.server.map(start_server).transpose()?;
    if let (Some(serving), Some(port)) = (&mut server, args.server_port) {
        let mut asked = None;
        let ready = serving.wait_until_listening(port, |_| {
            asked = signals.pending().next();
            if asked.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some(signal) = asked {
            server.map(ServerCommand::end).transpose()?;
            return Ok(exit::of_signal(signal).into());
        }
        ready?;
    }
    let (program, rest) = args.command.split_first().context("no command was given")?;
    let mut command = lab.client().command(program);
    command.args(rest);
    let mut client = match lab.client().spawn(command) {
        Err(error @ LabError::Spawn { .. }) => {
            say::error(&error);
            return Ok(not_started(&error).into());
        }
        spawned => spawned?,
    };

    let mut passed_on = ForwardedSignals::default();
    let finished = loop {
        if let Some(finished) = client.wait_for(Duration::from_secs(1))? {
            break finished;
        }
        for signal in signals.pending() {
            passed_on.take(signal, &client)?;
        }
    };
    if let Some(end) = server.map(ServerCommand::end).transpose()?.flatten() {
        say::line(format_args!("lab: the server command {end}"));
    }
    let report = PathReport::of(&lab, finished.status.code())?;
    for line in report.lines() {
        say::line(format_args!("lab: {line}"));
    }
    let problems = report.infidelities();
    for problem in &problems {
        say::line(format_args!("lab: not exactly the path that was asked for: {problem}"));
    }
    if let Some(directory) = &args.evidence {
        report.write(directory)?;
    }
    if args.json {
        stdout::line(report.json());
    }
    if args.strict && !problems.is_empty() && finished.status.success() {
        // The command may succeed on a less busy machine.
        return Ok(exit::of(FailureKind::Temporary).into());
    }
    Ok(exit_code(finished.status))
}

/// Signals forwarded to a command.
#[derive(Debug, Default)]
struct ForwardedSignals {
    last: Option<Instant>,
}

impl ForwardedSignals {
    /// Forwards a signal, except an interrupt that the terminal has already sent to the command;
    /// kills a command that is still running after a previous signal.
    fn take(&mut self, signal: i32, client: &Process) -> Result<()> {
        let is_from_terminal = signal == SIGINT && std::io::stdin().is_terminal();
        let before = self.last.replace(Instant::now());
        if before.is_some_and(|before| !is_from_terminal || before.elapsed() < TERMINAL_AGAIN) {
            return Ok(client.signal(Signal::KILL)?);
        }
        match signal {
            SIGINT if is_from_terminal => Ok(()),
            SIGINT => Ok(client.signal(Signal::INT)?),
            _ => Ok(client.signal(Signal::TERM)?),
        }
    }
}

/// Returns the exit status of a command that was not started, like a shell: 127 if it was not
/// found.
fn not_started(error: &LabError) -> u8 {
    match error {
        LabError::Spawn { cause, .. } if cause.kind() == ErrorKind::NotFound => exit::NO_COMMAND,
        _ => exit::NOT_EXECUTABLE,
    }
}

/// Returns a command's exit status like a shell: that of the signal that killed it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or_else(|| exit::of_signal(status.signal().unwrap_or_default())).into()
}
