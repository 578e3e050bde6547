//! The limits of a plan's workers.

use std::process::ExitCode;

use clap::Args;
use longhaul_core::units::Rate;
use longhaul_farm::budget::{FarmLimits, MIN_LIMIT};
use longhaul_farm::plan::Plan;

use super::{PlanArgs, PlanPath};
use crate::{stdout, values};

/// The rate of all workers, or of what they move from or to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RateOf {
    host: Option<String>,
    /// `None` lifts the limit.
    rate: Option<Rate>,
}

/// Operands and options of `plan limit`.
#[derive(Debug, Args)]
pub(super) struct LimitArgs {
    #[command(flatten)]
    plan: PlanPath,

    /// The rate of all workers, as 40Gbit, or HOST=RATE for what they move from or to one host; off
    /// lifts it
    #[arg(value_name = "[HOST=]RATE|off", value_parser = rate_or_off)]
    rates: Vec<RateOf>,

    /// Open at most this many connections to each host, all workers together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
}

/// Parses `[HOST=]RATE`.
pub(super) fn rate(text: &str) -> Result<RateOf, String> {
    let (host, rate) = match text.rsplit_once('=') {
        Some((host, rate)) => (Some(values::host(host)?.to_ascii_lowercase()), rate),
        None => (None, text),
    };
    match Rate::with_unit(rate)? {
        rate if rate >= MIN_LIMIT => Ok(RateOf { host, rate: Some(rate) }),
        _ => Err(format!("the least is {MIN_LIMIT}")),
    }
}

fn rate_or_off(text: &str) -> Result<RateOf, String> {
    match text.strip_suffix("off") {
        Some("") => Ok(RateOf { host: None, rate: None }),
        Some(host) if host.ends_with('=') => {
            let host = values::host(host.trim_end_matches('='))?;
            Ok(RateOf { host: Some(host.to_ascii_lowercase()), rate: None })
        }
        _ => rate(text),
    }
}

/// Returns the limits of a new plan.
pub(super) fn of_plan(args: &PlanArgs) -> FarmLimits {
    let mut limits = FarmLimits { connections: args.farm_connections, ..FarmLimits::default() };
    set(&mut limits, &args.farm_limit);
    limits
}

fn set(limits: &mut FarmLimits, rates: &[RateOf]) {
    for RateOf { host, rate } in rates {
        match (host, rate) {
            (None, rate) => limits.rate = *rate,
            (Some(host), Some(rate)) => drop(limits.host_rates.insert(host.clone(), *rate)),
            (Some(host), None) => drop(limits.host_rates.remove(host)),
        }
    }
}

/// Changes the limits that are given, and prints all.
pub(super) fn run(args: &LimitArgs) -> anyhow::Result<ExitCode> {
    let plan = Plan::open(&args.plan.path)?;
    let mut limits = FarmLimits::of(&plan)?;
    if !args.rates.is_empty() || args.connections.is_some() {
        set(&mut limits, &args.rates);
        limits.connections = args.connections.unwrap_or(limits.connections);
        limits.set(&plan)?;
    }
    lines(&limits).into_iter().for_each(stdout::line);
    Ok(ExitCode::SUCCESS)
}

/// Returns a line for each limit.
fn lines(limits: &FarmLimits) -> Vec<String> {
    let rate = limits.rate.map_or_else(|| "no limit".to_owned(), |rate| rate.to_string());
    let mut lines = vec![format!("all workers: {rate}")];
    lines.extend(limits.host_rates.iter().map(|(host, rate)| format!("host {host}: {rate}")));
    lines.push(format!("connections to each host: {}", limits.connections));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_and_lifted_in_all_and_by_host() {
        let mut limits = FarmLimits::default();
        for (texts, expected) in [
            (
                &["40Gbit", "Data.example.org=10Gbit", "[::1]=2GB/s"][..],
                &[
                    "all workers: 40.0 Gbit/s",
                    "host [::1]: 16.0 Gbit/s",
                    "host data.example.org: 10.0 Gbit/s",
                ][..],
            ),
            (&["off", "[::1]=off"], &["all workers: no limit", "host data.example.org: 10.0 Gbit/s"]),
            (&["data.example.org=off", "1Mbit"], &["all workers: 1.00 Mbit/s"]),
        ] {
            let rates: Vec<RateOf> = texts.iter().map(|text| rate_or_off(text).unwrap()).collect();
            set(&mut limits, &rates);
            let lines = lines(&limits);
            assert_eq!(lines[..lines.len() - 1], *expected);
            assert_eq!(lines.last().unwrap(), "connections to each host: 128");
        }
        for (text, word) in [
            ("10", "10bit"),
            ("10kbit", "least"),
            ("http://h=1Gbit", "name"),
            ("=off", "name"),
            ("fast", "rate"),
            ("-off", "rate"),
        ] {
            assert!(rate_or_off(text).unwrap_err().contains(word), "{text}");
        }
        assert!(rate("off").is_err(), "a new plan has no limit to lift");
    }
}
