//! Formats the state of a plan.

use std::path::Path;
use std::process::ExitCode;

use longhaul_core::units::Rate;
use longhaul_farm::plan::Plan;
use longhaul_farm::status::PlanStatus;

use crate::say;

/// The most failed units that are printed; `--json` has all.
const MAX_FAILURES: usize = 50;

/// Prints the state of a plan.
pub(super) fn status(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let plan = Plan::open(path)?;
    let status = PlanStatus::read(&plan)?;
    if json {
        say::output(serde_json::to_string(&status)?);
    } else {
        lines(&status).into_iter().chain(plan.header().left_out_note()).for_each(say::output);
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
    for worker in &status.workers {
        let units: Vec<String> = worker.units.iter().map(ToString::to_string).collect();
        let doing = if worker.ended {
            "has ended; others take over".to_owned()
        } else if worker.verifying > Rate::default() {
            format!("{}, verifying at {}", worker.rate, worker.verifying)
        } else {
            worker.rate.to_string()
        };
        let unit = if units.len() == 1 { "unit" } else { "units" };
        lines.push(format!(
            "  {} (process {}): {unit} {}, {doing}",
            printable(&worker.host),
            worker.pid,
            units.join(", ")
        ));
    }
    for failure in status.failures.iter().take(MAX_FAILURES) {
        let next = match (failure.given_up, failure.attempts) {
            (true, attempts) => format!("given up after {attempts} attempts, see plan retry"),
            (false, 1) => "1 attempt".to_owned(),
            (false, attempts) => format!("{attempts} attempts"),
        };
        let (host, why) = (printable(&failure.host), printable(&failure.why));
        lines.push(format!("  unit {} failed on {host} ({next}): {why}", failure.unit));
    }
    if let Some(more) = status.failures.len().checked_sub(MAX_FAILURES).filter(|more| *more > 0) {
        lines.push(format!("  ... and {more} more failed units: --json lists all"));
    }
    lines
}

/// Hides control characters, which any writer of the plan's state may have put there.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;
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
        let status = PlanStatus {
            tally: Tally { units: 40, done: 12, failed: 2 },
            files: 40,
            bytes: Bytes::mib(40960),
            bytes_done: Bytes::mib(12288),
            left_out: 0,
            workers: vec![worker(false, 0), worker(false, 8_000_000_000), worker(true, 0)],
            failures: vec![failure(1, false), failure(3, true)],
        };
        let expected = [
            "12 of 40 units done, 12 GiB of 40 GiB; 4 under way, 2 failed",
            "  n1 (process 7): units 3, 4, 1.20 Gbit/s",
            "  n1 (process 7): units 3, 4, 1.20 Gbit/s, verifying at 8.00 Gbit/s",
            "  n1 (process 7): units 3, 4, has ended; others take over",
            "  unit 9 failed on n?2 (1 attempt): disk?full",
            "  unit 9 failed on n?2 (given up after 3 attempts, see plan retry): disk?full",
        ];
        assert_eq!(lines(&status), expected);
    }
}
