//! `longhaul lab exec`: a command at each end of an emulated path.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::{
    Aqm, BackgroundSteps, CrossFlows, FarCommand, GeModel, Hosts, Lab, PathSpec, Process, QueueLimit,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::say;

/// Run a command on the near host of an emulated path, and another on the far host.
///
/// LAB_NEAR and LAB_FAR hold the hosts' IPv4 addresses, LAB_NEAR6 and LAB_FAR6 their IPv6 addresses. The
/// exit status is the command's. Nothing is left behind, whatever ends it.
#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    path: PathArgs,

    /// Shell command to run on the far host until the near command ends
    #[arg(long, value_name = "CMD")]
    far: Option<String>,

    /// TCP port of the far command: wait until it listens there before the near command starts
    #[arg(long, value_name = "PORT", requires = "far", value_parser = clap::value_parser!(u16).range(1..))]
    far_port: Option<u16>,

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

    /// Queue before the bottleneck, in bytes (250MB) or packets (100packets) [default: one BDP]
    #[arg(long, value_name = "SIZE")]
    queue: Option<QueueLimit>,

    /// Share of packets lost at random each way, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    loss: f64,

    /// Packets lost in bursts each way, as netem's gemodel: p,r[,1-h[,1-k]], shares or percent (0.1%,10%)
    #[arg(long, value_name = "P,R[,..]", default_value_t)]
    gemodel: GeModel,

    /// How the queue chooses what to drop: droptail, or red with parameters (red:min_th=5,max_th=15,max_p=0.1,w_q=0.002,gentle=yes)
    #[arg(long, value_name = "NAME[:..]", default_value_t)]
    aqm: Aqm,

    /// Poisson traffic of others each way: a rate, a share of --rate, or steps (0@0s,20%@8s,50%@16s)
    #[arg(long, value_name = "RATE", default_value_t)]
    background: BackgroundSteps,

    /// Bulk TCP flows of others from the far host to the near one: how many, and when (4@5s..20s)
    #[arg(long, value_name = "N[@FROM..TO]", default_value_t)]
    cross_flows: CrossFlows,

    /// Hold pure acknowledgements, each way, to the next multiple of this time, as a switch that bunches them
    #[arg(long, value_name = "TIME", default_value = "0")]
    ack_compression: Rtt,

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
            gemodel: self.gemodel,
            aqm: self.aqm,
            background: self.background,
            cross_flows: self.cross_flows,
            ack_compression: self.ack_compression,
            hosts: self.hosts,
            congestion: self.congestion,
            seed: self.seed,
            mtu: Bytes::new(self.mtu),
        }
    }
}

/// Runs both commands; gives the near one's exit status.
///
/// # Errors
/// Fails where the lab cannot be built or a command cannot be started.
pub(super) fn run(args: ExecArgs) -> Result<ExitCode> {
    // Before any thread is started: the kernel demands it.
    longhaul_lab::gain_privilege()?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let lab = Lab::new(args.path.spec())?;
    let start_far = |command: String| FarCommand::start(&lab.far(), &command, |_| Ok(()));
    let mut far = args.far.map(start_far).transpose()?;
    if let (Some(serving), Some(port)) = (&mut far, args.far_port) {
        let mut asked = None;
        let ready = serving.wait_until_listening(port, |_| {
            asked = signals.pending().next();
            if asked.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some(signal) = asked {
            far.map(FarCommand::end).transpose()?;
            return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)));
        }
        ready?;
    }
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
    if let Some(status) = far.map(FarCommand::end).transpose()?.flatten() {
        say::line(format_args!("lab: the far command ended early: {status}"));
    }
    report(&lab)?;
    Ok(exit_code(finished.status))
}

/// Passes a signal on; an interrupt only where the terminal has not sent it to the command as well.
fn forward(signal: i32, near: &Process) -> Result<()> {
    match signal {
        SIGINT if std::io::stdin().is_terminal() => Ok(()),
        SIGINT => Ok(near.interrupt()?),
        _ => Ok(near.terminate()?),
    }
}

fn report(lab: &Lab) -> Result<()> {
    let stats = lab.stats()?;
    say::line(format_args!("lab: {stats}"));
    for problem in stats.infidelities(lab.spec().one_way()) {
        say::line(format_args!("lab: WARNING: not the path that was asked for: {problem}"));
    }
    Ok(())
}

/// Returns a command's exit status as a shell would: 128 and the signal where one killed it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
