//! How long an experiment still takes, from how long its executions took so far.

use std::time::Duration;

use longhaul_lab::scenario::{Execution, RunResult};

/// Returns the time that `left` takes, of which the first runs for `elapsed`; `None` where nothing is known.
///
/// An execution takes as long as those of its configuration did, else as those of its run, else as any.
pub(super) fn time_left(done: &[RunResult], left: &[&Execution<'_>], elapsed: Duration) -> Option<Duration> {
    let mean = |like: &dyn Fn(&RunResult) -> bool| {
        let (mut sum, mut count) = (0.0, 0_u32);
        for result in done.iter().filter(|result| result.succeeded() && like(result)) {
            sum += result.wall_s;
            count += 1;
        }
        (count > 0).then(|| sum / f64::from(count))
    };
    let of = |execution: &Execution<'_>| {
        let same_run = |result: &RunResult| result.name == execution.run.name;
        let same_values = |result: &RunResult| {
            execution
                .parameters
                .iter()
                .all(|(name, value)| result.parameters.get(*name).is_some_and(|own| own == value))
        };
        mean(&|result| same_run(result) && same_values(result))
            .or_else(|| mean(&same_run))
            .or_else(|| mean(&|_| true))
    };
    let total = left.iter().map(|execution| of(execution)).sum::<Option<f64>>()?;
    Duration::try_from_secs_f64(total - elapsed.as_secs_f64()).ok().or(Some(Duration::ZERO))
}

/// Writes a time as one would say it: "41 s", "9 min", "2 h 5 min".
pub(super) fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, 1) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
