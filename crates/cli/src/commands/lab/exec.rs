//! `longhaul lab exec`: a command at each end of an emulated path.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::{
    Aqm, BackgroundSteps, CrossFlows, GeModel, Hosts, Lab, LabError, ObservationOptions, Overrides,
    PacketShare, Pairs, PathSpec, Process, QueueLimit, RateSchedule, Reorder, ServerCommand,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::say;

use super::evidence;
use super::path_report::PathReport;

/// A second Ctrl-C within this time kills a command on a terminal: the command itself may act on the first one.
const TERMINAL_AGAIN: Duration = Duration::from_secs(2);
/// EX_TEMPFAIL of sysexits.h: the command may succeed on a less busy machine.
const NOT_THE_PATH: u8 = 75;

/// Run a command on the client of an emulated path, and another on its server.
///
/// Both hosts resolve the names `client` and `server`. LAB_CLIENT and LAB_SERVER hold their IPv4 addresses,
/// LAB_CLIENT6 and LAB_SERVER6 their IPv6 addresses. The exit status is the command's, or 127 if it is not found and
/// 126 if it cannot be executed. All processes end with it. SIGINT, SIGTERM and SIGHUP are passed on to the command; a second one kills it.
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

    /// Write what the client sends and receives to a capture: headers of IP packets, super-packets as such
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pcap: Option<PathBuf>,

    /// Write what the server sends and receives to another capture: headers of IP packets, super-packets as such
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

/// The emulated path and its hosts.
#[derive(Debug, Args)]
struct PathArgs {
    /// Set the rate of the bottleneck each way [default: as fast as this machine]
    #[arg(long, value_parser = Rate::with_unit)]
    rate: Option<Rate>,

    /// Set the round-trip time, half of it each way
    #[arg(long, default_value = "0")]
    rtt: Rtt,

    /// Set the queue before the bottleneck, in bytes (250MB) or packets (100packets) [default: one BDP]
    #[arg(long, value_name = "SIZE", value_parser = queue)]
    queue: Option<QueueLimit>,

    /// Set the one-way delay in each direction, as netem's `delay`: half of --rtt
    #[arg(long, value_name = "TIME", conflicts_with = "rtt")]
    delay: Option<Rtt>,

    /// Lose packets at random each way, as netem's `loss`: 0.1%
    #[arg(long, value_name = "PERCENT", default_value_t)]
    loss: PacketShare,

    /// Lose packets in bursts each way, as netem's gemodel: p,r[,1-h[,1-k]], shares or percent (0.1%,10%)
    #[arg(long, value_name = "P,R[,..]", default_value_t)]
    gemodel: GeModel,

    /// Choose how the queue drops packets: droptail, red, codel or fq_codel, with parameters (codel:target=5ms,interval=100ms)
    #[arg(long, value_name = "NAME[:..]", default_value_t)]
    aqm: Aqm,

    /// Add Poisson background traffic each way: a rate, a share of --rate, or steps (0@0s,20%@8s,50%@16s)
    #[arg(long, value_name = "RATE", default_value_t, value_parser = with_units::<BackgroundSteps>)]
    background: BackgroundSteps,

    /// Add bulk TCP cross flows from the server to the client: number and time (4@5s..20s)
    #[arg(long, value_name = "N[@FROM..TO]", default_value_t)]
    cross_flows: CrossFlows,

    /// Hold pure acknowledgements, each way, to the next multiple of this time, as a switch that bunches them
    #[arg(long, value_name = "TIME", default_value = "0")]
    ack_compression: Rtt,

    /// Let the hosts negotiate ECN, and the queue (--aqm red, codel, fq_codel) mark instead of dropping
    #[arg(long)]
    ecn: bool,

    /// Vary the delay by up to this time, up and down; packets keep their order
    #[arg(long, value_name = "TIME", default_value = "0")]
    jitter: Rtt,

    /// Hold a share of packets back for a time, so that others overtake them: 1%,5ms
    #[arg(long, value_name = "PERCENT,TIME", default_value_t)]
    reorder: Reorder,

    /// Duplicate packets: 0.1%
    #[arg(long, value_name = "PERCENT", default_value_t)]
    duplicate: PacketShare,

    /// Flip a bit of packets: 0.1%
    #[arg(long, value_name = "PERCENT", default_value_t)]
    corrupt: PacketShare,

    /// Change the rate at times since the first packet: 100Mbit@0s,20Mbit@8s
    #[arg(long, value_name = "RATE@TIME[,..]", conflicts_with = "trace", value_parser = with_units::<RateSchedule>)]
    rate_steps: Option<RateSchedule>,

    /// Send by a trace of mahimahi: a line for each 1500 bytes, with the millisecond at which they may leave
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,

    /// Override values from the client to the server: rate=10Mbit; queue=100packets
    #[arg(long, value_name = "NAME=VALUE[;..]", default_value_t, value_parser = with_units::<Overrides>)]
    up: Overrides,

    /// Override values from the server to the client
    #[arg(long, value_name = "NAME=VALUE[;..]", default_value_t, value_parser = with_units::<Overrides>)]
    down: Overrides,

    /// Add a second bottleneck behind the first, as it differs from that: rate=50Mbit
    #[arg(long, value_name = "NAME=VALUE[;..]", default_value_t, value_parser = with_units::<Overrides>)]
    second: Overrides,

    /// Add pairs of hosts that share the path, by their round trips; @first or @second: they cross only this bottleneck.
    /// Their names are client1, server1, client2 and so on
    #[arg(long, value_name = "RTT[@WHICH],..", default_value_t, conflicts_with_all = ["rtt", "delay"])]
    pairs: Pairs,

    /// Set the hosts' TCP buffer limits: stock (Debian's) or tuned (1 GiB)
    #[arg(long, default_value_t)]
    hosts: Hosts,

    /// Set the hosts' congestion control: cubic, bbr, reno
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,

    /// Set the seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Set the largest packet in bytes, at the IP layer
    #[arg(long, default_value_t = 1500)]
    mtu: u64,
}

/// Parses a queue; refuses a bare prefix.
fn queue(text: &str) -> Result<QueueLimit, String> {
    match text.parse() {
        Ok(QueueLimit::Bytes(_)) => Bytes::with_unit(text).map(QueueLimit::Bytes),
        Ok(packets) => Ok(packets),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a value with nested rates: steps (0@0s,20Mbit@8s) or overrides (rate=10Mbit; queue=100packets).
fn with_units<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    for assignment in text.split(';') {
        let (name, values) = assignment.split_once('=').unwrap_or(("rate", assignment));
        if name.trim() == "queue" {
            queue(values)?;
        }
        let values = values.split([',', ' ']).filter(|_| matches!(name.trim(), "rate" | "background"));
        for value in values.filter_map(|step| step.split('@').next()) {
            if value.parse::<Rate>().is_ok() {
                Rate::with_unit(value)?;
            }
        }
    }
    text.parse().map_err(|error: T::Err| error.to_string())
}

impl PathArgs {
    /// # Errors
    /// Fails if the trace is invalid.
    fn spec(self) -> Result<PathSpec> {
        let schedule = match &self.trace {
            Some(file) => RateSchedule::load_trace(file).map_err(|error| refused("trace", error))?,
            None => self.rate_steps.unwrap_or_default(),
        };
        let mut spec = PathSpec {
            rate: self.rate,
            rtt: self.delay.map_or(self.rtt, |delay| Rtt::new(delay.get().saturating_mul(2))),
            queue: self.queue,
            loss: self.loss.get(),
            gemodel: self.gemodel,
            aqm: self.aqm,
            background: self.background,
            cross_flows: self.cross_flows,
            ack_compression: self.ack_compression,
            hosts: self.hosts,
            congestion: self.congestion,
            seed: self.seed,
            mtu: Bytes::new(self.mtu),
            schedule: RateSchedule::None,
            jitter: self.jitter,
            reorder: self.reorder,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            ecn: self.ecn,
            up: self.up,
            down: self.down,
            second: self.second,
            pairs: self.pairs,
        };
        spec.set_schedule(schedule);
        Ok(spec)
    }
}

fn refused(what: &'static str, why: impl ToString) -> LabError {
    LabError::Spec { what, why: why.to_string() }
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
            return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)));
        }
        ready?;
    }
    let (program, rest) = args.command.split_first().context("no command was given")?;
    let mut command = lab.client().command(program);
    command.args(rest);
    let mut client = match lab.client().spawn(command) {
        Err(error @ LabError::Spawn { .. }) => {
            say::error(&error);
            return Ok(ExitCode::from(not_started(&error)));
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
        say::output(report.json());
    }
    if args.strict && !problems.is_empty() && finished.status.success() {
        return Ok(ExitCode::from(NOT_THE_PATH));
    }
    Ok(exit_code(finished.status))
}

/// Signals forwarded to a command.
#[derive(Debug, Default)]
struct ForwardedSignals {
    last: Option<Instant>,
}

impl ForwardedSignals {
    /// Forwards a signal, except an interrupt that the terminal has already sent to the command; kills a command that
    /// is still running after a previous signal.
    fn take(&mut self, signal: i32, client: &Process) -> Result<()> {
        let is_from_terminal = signal == SIGINT && std::io::stdin().is_terminal();
        let before = self.last.replace(Instant::now());
        if before.is_some_and(|before| !is_from_terminal || before.elapsed() < TERMINAL_AGAIN) {
            return Ok(client.kill()?);
        }
        match signal {
            SIGINT if is_from_terminal => Ok(()),
            SIGINT => Ok(client.interrupt()?),
            _ => Ok(client.terminate()?),
        }
    }
}

/// Returns the exit status of a command that was not started, like a shell: 127 if it was not found.
fn not_started(error: &LabError) -> u8 {
    match error {
        LabError::Spawn { cause, .. } if cause.kind() == ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// Returns a command's exit status like a shell: 128 plus the signal that killed it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
