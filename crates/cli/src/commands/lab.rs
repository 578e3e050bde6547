//! `longhaul lab`: commands at the two ends of an emulated path.

use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::{Aqm, Hosts, Lab, PathSpec, Process, QueueLimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Emulate a long fat network on this machine, with the real kernel's TCP at both ends.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    Exec(ExecArgs),
    Run(RunArgs),
}

/// Run a command on the near host of an emulated path, and another on the far host.
///
/// LAB_NEAR and LAB_FAR hold the hosts' IPv4 addresses, LAB_NEAR6 and LAB_FAR6 their IPv6 addresses. The
/// exit status is the command's. Nothing is left behind, whatever ends it.
#[derive(Debug, Args)]
struct ExecArgs {
    #[command(flatten)]
    path: PathArgs,

    /// Shell command to run on the far host until the near command ends
    #[arg(long, value_name = "CMD")]
    far: Option<String>,

    /// Command to run on the near host
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// The emulated path and its hosts.
#[derive(Debug, Args)]
struct PathArgs {
    /// Rate of the bottleneck each way [default: as fast as this machine]
    #[arg(long)]
    rate: Option<Rate>,

    /// Round-trip time, half of it each way
    #[arg(long, default_value = "0")]
    rtt: Rtt,

    /// Queue before the bottleneck, in bytes (250MB) or packets (1000p) [default: one BDP]
    #[arg(long, value_name = "SIZE")]
    queue: Option<QueueLimit>,

    /// Share of packets lost at random each way, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    loss: f64,

    /// How the queue chooses what to drop: droptail
    #[arg(long, default_value_t)]
    aqm: Aqm,

    /// The hosts' TCP buffer limits: stock (Debian's) or tuned (1 GiB)
    #[arg(long, default_value_t)]
    hosts: Hosts,

    /// The hosts' congestion control: cubic, bbr, reno
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,

    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Largest packet in bytes, at the IP layer
    #[arg(long, default_value_t = 1500)]
    mtu: u64,
}

impl PathArgs {
    fn spec(self) -> PathSpec {
        PathSpec {
            rate: self.rate,
            rtt: self.rtt,
            queue: self.queue,
            loss: self.loss,
            aqm: self.aqm,
            hosts: self.hosts,
            congestion: self.congestion,
            seed: self.seed,
            mtu: Bytes::new(self.mtu),
        }
    }
}

/// Run the experiment that a scenario file describes, and write DIR/results.json.
#[derive(Debug, Args)]
struct RunArgs {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Where the results go [default: out/ and the scenario's name]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs `longhaul lab ...`.
///
/// # Errors
/// Fails where the lab cannot be built or a command cannot be started.
pub(crate) fn run(args: LabArgs) -> Result<ExitCode> {
    // Before any thread is started: the kernel demands it.
    longhaul_lab::gain_privilege()?;
    match args.command {
        LabCommand::Exec(args) => exec(args),
        LabCommand::Run(args) => run_scenario(args),
    }
}

fn exec(args: ExecArgs) -> Result<ExitCode> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let lab = Lab::new(args.path.spec())?;
    let far = args.far.map(|command| spawn_far(&lab, &command)).transpose()?;
    let (program, rest) = args.command.split_first().context("no command was given")?;
    let mut command = lab.near().command(program);
    command.args(rest);
    let mut near = lab.near().spawn(command)?;

    let finished = loop {
        if let Some(finished) = near.wait_for(Duration::from_secs(1))? {
            break finished;
        }
        for signal in signals.pending() {
            forward(signal, &near)?;
        }
    };
    if let Some(far) = far {
        end_far(far)?;
    }
    report(&lab)?;
    Ok(exit_code(finished.status))
}

/// Starts the far command in a process group of its own: Ctrl-C goes to the near command alone.
fn spawn_far(lab: &Lab, command: &str) -> Result<Process> {
    let mut shell = lab.far().command("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).process_group(0);
    Ok(lab.far().spawn(shell)?)
}

/// Passes a signal on; an interrupt only where the terminal has not sent it to the command as well.
fn forward(signal: i32, near: &Process) -> Result<()> {
    match signal {
        SIGINT if std::io::stdin().is_terminal() => Ok(()),
        SIGINT => Ok(near.interrupt()?),
        _ => Ok(near.terminate()?),
    }
}

/// Asks the far command to end, and says so where it had failed before.
fn end_far(mut far: Process) -> Result<()> {
    const GRACE: Duration = Duration::from_secs(1);
    if let Some(finished) = far.wait_for(Duration::ZERO)? {
        if !finished.status.success() {
            eprintln!("lab: the far command ended early: {}", finished.status);
        }
        return Ok(());
    }
    far.terminate_group()?;
    far.wait_for(GRACE)?;
    Ok(())
}

fn report(lab: &Lab) -> Result<()> {
    let stats = lab.stats()?;
    eprintln!("lab: {stats}");
    for problem in stats.infidelities(lab.spec().one_way()) {
        eprintln!("lab: WARNING: not the path that was asked for: {problem}");
    }
    Ok(())
}

/// Returns a command's exit status as a shell would: 128 and the signal where one killed it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn run_scenario(_args: RunArgs) -> Result<ExitCode> {
    anyhow::bail!("soon")
}
