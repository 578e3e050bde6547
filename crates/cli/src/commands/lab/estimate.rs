//! Estimates the remaining time of an experiment from the durations of its executions.

use std::time::Duration;

use longhaul_lab::scenario::{Execution, RunResult};

/// Returns the expected duration of `left`; `None` without data.
///
/// The estimate of an execution is the mean of its configuration, otherwise of its run, otherwise
/// of all.
pub(super) fn time_left(done: &[RunResult], left: &[&Execution<'_>]) -> Option<Duration> {
    let mean = |like: &dyn Fn(&RunResult) -> bool| {
        let (mut sum, mut count) = (0.0, 0_u32);
        for result in done.iter().filter(|result| result.succeeded() && like(result)) {
            sum += result.times.wall_s;
            count += 1;
        }
        (count > 0).then(|| sum / f64::from(count))
    };
    let of = |execution: &Execution<'_>| {
        let same_run = |result: &RunResult| result.name == execution.run.name;
        mean(&|result| result.is_like(execution)).or_else(|| mean(&same_run)).or_else(|| mean(&|_| true))
    };
    let total = left.iter().map(|execution| of(execution)).sum::<Option<f64>>()?;
    Duration::try_from_secs_f64(total).ok()
}

/// Formats a duration: "41 s", "9 min", "2 h 5 min".
pub(super) fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, 1) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_lab::scenario::{Results, Scenario, Selection};

    use super::*;

    #[test]
    fn remaining_time_follows_from_ended_executions() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("small.toml");
        let toml = "repeat = 2\n[path]\n[sweep]\nsize = [1, 2]\n\
             [[run]]\nname = 'a'\ncommand = 'true'\n[[run]]\nname = 'b'\ncommand = 'true'\nsweep = []\n";
        std::fs::write(&file, toml).unwrap();
        let scenario = Scenario::load(&file, &[]).unwrap();
        let plan = scenario.plan(&Selection::default()).unwrap();
        let left = Results::new(&scenario);
        let left = left.remaining(&plan);
        let names: Vec<_> = left.iter().map(ToString::to_string).collect();
        assert_eq!(names[..3], ["a size=1 (1)", "b (1)", "a size=2 (1)"]);
        let result = |name: &str, size: Option<&str>, wall_s: f64| -> RunResult {
            serde_json::from_value(serde_json::json!({
                "name": name, "parameters": size.map_or(serde_json::json!({}), |size| serde_json::json!({ "size": size })),
                "repetition": 1, "seed": 1, "started": 0.0, "exit_code": 0, "signal": null, "timed_out": false,
                "error": null, "wall_s": wall_s, "user_s": 0.0, "sys_s": 0.0, "values": {}, "link": null,
                "warnings": [],
            }))
            .unwrap()
        };
        let seconds =
            |done: &[RunResult], from: usize| time_left(done, &left[from..]).map(|time| time.as_secs());
        assert_eq!(seconds(&[], 0), None);
        let mut done = vec![result("a", Some("1"), 10.0)];
        // Five executions are left, without other data.
        assert_eq!(seconds(&done, 1), Some(50));
        done.push(result("b", None, 1.0));
        done.push(result("a", Some("2"), 20.0));
        // The remaining executions are a with size=1, b, and a with size=2.
        assert_eq!(seconds(&done, 3), Some(31));
    }

    #[test]
    fn durations_are_formatted() {
        for (seconds, said) in
            [(0, "0 s"), (119, "119 s"), (120, "2 min"), (3599, "59 min"), (7500, "2 h 5 min")]
        {
            assert_eq!(format_duration(Duration::from_secs(seconds)), said);
        }
    }
}
