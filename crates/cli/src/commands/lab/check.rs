//! `longhaul lab check`: measures which paths this machine can emulate.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::{Rate, Rtt};
use longhaul_lab::{CrossFlows, EndSpec, Hosts, Lab, PathSpec, PathStats, TrafficSpec};

use crate::stdout;

/// Rate, RTT, and the queue unless it is one BDP, as option values.
type PathNames = (&'static str, &'static str, &'static str);
/// Paths in order of difficulty.
const PATHS: [PathNames; 7] = [
    ("100Mbit", "20ms", ""),
    ("1Gbit", "20ms", ""),
    ("1Gbit", "100ms", "1MB"),
    ("2.5Gbit", "20ms", ""),
    ("10Gbit", "20ms", ""),
    ("10Gbit", "100ms", ""),
    ("10Gbit", "200ms", ""),
];
/// Number of flows that load a path.
const FLOWS: u16 = 4;
/// Duration of the load after slow start.
const LOADED: Duration = Duration::from_secs(4);
/// Share of the rate above which a path counts as loaded.
const LOAD: f64 = 0.8;

/// Measure which paths this machine can hold, in less than a minute.
///
/// Loads each path with TCP flows between tuned hosts. Each line says what the flows reached, how
/// late packets were at the 99th percentile, and how late they may be. A held path kept its
/// specification under full load; a path that is not loaded kept it with flows that the machine
/// could not drive faster.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Leave out paths that are faster
    #[arg(long, value_name = "RATE", value_parser = Rate::with_unit)]
    max_rate: Option<Rate>,
}

/// Measures all paths; exits with status 1 if none can be emulated.
///
/// # Errors
/// Fails if this machine does not permit a lab.
pub(super) fn run(args: CheckArgs) -> Result<ExitCode> {
    let all = PATHS.into_iter().map(|path| Ok((path, spec(path)?))).collect::<Result<Vec<_>>>()?;
    let paths = up_to(args.max_rate, all)?;
    // The kernel requires it before the first thread starts.
    longhaul_lab::gain_privilege()?;
    stdout::line(format_args!(
        "{:>10} {:>8} {:>8}  {:>12} {:>10} {:>10}  {}",
        "rate", "RTT", "queue", "goodput", "late p99", "allowed", "held"
    ));
    let mut held = 0;
    for ((rate, rtt, queue), spec) in paths {
        let stats = load(&spec)?;
        let row = PathRow::of(&spec, &stats);
        held += usize::from(row.is_held);
        let queue = if queue.is_empty() { "1 BDP" } else { queue };
        stdout::line(format_args!(
            "{rate:>10} {rtt:>8} {queue:>8}  {:>12} {:>7.2} ms {:>7.2} ms  {}",
            row.goodput.to_string(),
            row.late.as_secs_f64() * 1e3,
            spec.allowed_lateness().0.as_secs_f64() * 1e3,
            row.verdict()
        ));
    }
    Ok(if held > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes paths faster than `most`.
///
/// # Errors
/// Fails if no path remains.
fn up_to(
    most: Option<Rate>,
    mut paths: Vec<(PathNames, PathSpec)>,
) -> Result<Vec<(PathNames, PathSpec)>, Failure> {
    let Some(most) = most else { return Ok(paths) };
    let least = paths.iter().filter_map(|(_, spec)| spec.rate).min().unwrap_or_default();
    paths.retain(|(_, spec)| spec.rate.is_some_and(|rate| rate <= most));
    if paths.is_empty() {
        let message =
            format!("--max-rate {most} leaves out every path: the slowest that is checked has {least}");
        return Err(Failure::new(FailureKind::Usage, message));
    }
    Ok(paths)
}

fn spec((rate, rtt, queue): PathNames) -> Result<PathSpec> {
    let queue = (!queue.is_empty()).then(|| queue.parse()).transpose().context("cannot read a queue")?;
    Ok(PathSpec {
        rate: Some(rate.parse().map_err(anyhow::Error::msg)?),
        rtt: rtt.parse::<Rtt>().map_err(anyhow::Error::msg)?,
        queue,
        ends: EndSpec { hosts: Hosts::Tuned, ..EndSpec::default() },
        traffic: TrafficSpec {
            cross_flows: CrossFlows { count: FLOWS, ..CrossFlows::default() },
            ..TrafficSpec::default()
        },
        ..PathSpec::default()
    })
}

/// Loads a path with flows from the server to the client.
fn load(spec: &PathSpec) -> Result<PathStats> {
    let lab = Lab::new(spec.clone())?;
    // The first packet starts the flows.
    let address = lab.server().ipv4();
    let sent =
        lab.client().run(move || std::net::UdpSocket::bind("0.0.0.0:0")?.send_to(b"begin", (address, 9)))?;
    sent.context("cannot send the first packet")?;
    let slow_start = spec.round_trip() * 20;
    std::thread::sleep(LOADED + slow_start.min(Duration::from_secs(3)));
    Ok(lab.stats()?)
}

struct PathRow {
    goodput: Rate,
    late: Duration,
    is_held: bool,
    is_loaded: bool,
}

impl PathRow {
    fn of(spec: &PathSpec, stats: &PathStats) -> Self {
        let late = |direction: longhaul_lab::DirectionStats| direction.late.both_p99();
        let goodput = stats.cross_flows.goodput();
        let wanted = spec.rate.unwrap_or_default().scaled(LOAD);
        Self {
            goodput,
            late: late(stats.server_to_client).max(late(stats.client_to_server)),
            is_held: stats.infidelities(spec).is_empty(),
            is_loaded: goodput >= wanted,
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.is_held, self.is_loaded) {
            (true, true) => "yes",
            (true, false) => "yes, but not loaded",
            (false, _) => "NO",
        }
    }
}
