//! Formats the state of a plan.

use std::path::Path;
use std::process::ExitCode;

use longhaul_core::units::Rate;
use longhaul_farm::plan::Plan;
use longhaul_farm::status::PlanStatus;

use crate::stdout;

/// The most failed units that are printed; `--json` has all.
const MAX_FAILURES: usize = 50;

/// Prints the state of a plan.
pub(super) fn status(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let plan = Plan::open(path)?;
    let status = PlanStatus::read(&plan)?;
    if json {
        stdout::line(serde_json::to_string(&status)?);
    } else {
        lines(&status).into_iter().chain(plan.header().left_out_note()).for_each(stdout::line);
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(status: &PlanStatus) -> Vec<String> {
    let tally = status.tally;
    let under_way: usize =
        status.workers.iter().filter(|worker| !worker.ended).map(|worker| worker.units.len()).sum();
    let mut lines = vec![format!(
        "{} of {} units done, {} of {}; {under_way} under way, {} failed",
        tally.done, tally.units, status.bytes_done, status.bytes, tally.failed
    )];
    if status.limits.limits_rate() {
        let all = status.limits.rate.map(|rate| format!("{rate} in all"));
        let hosts =
            status.limits.host_rates.iter().map(|(host, rate)| format!("{rate} for {}", printable(host)));
        lines.push(format!("  limited to {}", all.into_iter().chain(hosts).collect::<Vec<_>>().join(", ")));
    }
    for worker in &status.workers {
        let units: Vec<String> = worker.units.iter().map(ToString::to_string).collect();
        let doing = if worker.ended {
            "has ended; others take over".to_owned()
        } else if worker.verifying > Rate::default() {
            format!("{}, verifying at {}", worker.rate, worker.verifying)
        } else {
            worker.rate.to_string()
        };
        let host = status.hosts.iter().find(|host| host.host == worker.host && !worker.ended);
        let held = host.and_then(|host| host.limited_by);
        let held = held.map_or_else(String::new, |held| format!(", limited by {}", held.phrase()));
        let unit = if units.len() == 1 { "unit" } else { "units" };
        lines.push(format!(
            "  {} (process {}): {unit} {}, {doing}{held}",
            printable(&worker.host),
            worker.pid,
            units.join(", ")
        ));
    }
    if !status.hosts.is_empty() {
        lines.push(format!("  {}", printable(&status.explanation.to_string())));
    }
    for failure in status.failures.iter().take(MAX_FAILURES) {
        let (host, why) = (printable(&failure.host), printable(&failure.why));
        if failure.attempts == 0 {
            lines.push(format!("  unit {} was given back by {host}: {why}", failure.unit));
            continue;
        }
        let next = match (failure.given_up, failure.attempts) {
            (true, attempts) => format!("given up after {attempts} attempts, see plan retry"),
            (false, 1) => "1 attempt".to_owned(),
            (false, attempts) => format!("{attempts} attempts"),
        };
        lines.push(format!("  unit {} failed on {host} ({next}): {why}", failure.unit));
    }
    if let Some(more) = status.failures.len().checked_sub(MAX_FAILURES).filter(|more| *more > 0) {
        lines.push(format!("  ... and {more} more units: --json lists all"));
    }
    lines
}

/// Hides control characters, which any writer of the plan's state may have put there.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longhaul_core::units::Bytes;
    use longhaul_farm::budget::FarmLimits;
    use longhaul_farm::explanation::{Explanation, HeldBy, HostState};
    use longhaul_farm::status::{UnitFailure, WorkerStatus};
    use longhaul_farm::store::Tally;
    use longhaul_farm::unit::UnitId;

    use super::*;

    #[test]
    fn state_is_a_line_for_all_and_one_for_each_worker_and_failure() {
        let worker = |ended, verifying| WorkerStatus {
            worker: "w".into(),
            host: "n1".into(),
            pid: 7,
            units: vec![UnitId(3), UnitId(4)],
            rate: Rate::bits_per_sec(1_200_000_000),
            verifying: Rate::bits_per_sec(verifying),
            ended,
        };
        let failure = |attempts, given_up| UnitFailure {
            unit: UnitId(9),
            attempts,
            given_up,
            why: "disk\x1bfull".into(),
            host: "n\r2".into(),
        };
        let hosts = vec![HostState {
            host: "n1".into(),
            rate: Rate::bits_per_sec(1_200_000_000),
            limited_by: Some(HeldBy::FarmLimit),
        }];
        let status = PlanStatus {
            tally: Tally { units: 40, done: 12, failed: 2 },
            files: 40,
            bytes: Bytes::mib(40960),
            bytes_done: Bytes::mib(12288),
            left_out: 0,
            workers: vec![worker(false, 0), worker(false, 8_000_000_000), worker(true, 0)],
            explanation: Explanation::of(&hosts, &BTreeMap::new(), false),
            hosts,
            limits: FarmLimits {
                rate: Some(Rate::bits_per_sec(40_000_000_000)),
                host_rates: BTreeMap::from([("h".into(), Rate::bits_per_sec(1_000_000_000))]),
                ..FarmLimits::default()
            },
            failures: vec![failure(0, false), failure(1, false), failure(3, true)],
        };
        let expected = [
            "12 of 40 units done, 12 GiB of 40 GiB; 4 under way, 2 failed",
            "  limited to 40.0 Gbit/s in all, 1.00 Gbit/s for h",
            "  n1 (process 7): units 3, 4, 1.20 Gbit/s, limited by the farm's limit",
            "  n1 (process 7): units 3, 4, 1.20 Gbit/s, verifying at 8.00 Gbit/s, limited by the farm's limit",
            "  n1 (process 7): units 3, 4, has ended; others take over",
            "  limited by the farm's limit; one more host brings nothing: all hosts share it; longhaul plan limit changes it",
            "  unit 9 was given back by n?2: disk?full",
            "  unit 9 failed on n?2 (1 attempt): disk?full",
            "  unit 9 failed on n?2 (given up after 3 attempts, see plan retry): disk?full",
        ];
        assert_eq!(lines(&status), expected);
    }
}
