//! Repeats a run where this machine did not hold the emulated path, and reports it.

use std::io::Write;

use super::program::Ended;

/// EX_TEMPFAIL: `lab exec --strict` did not hold the path, or its command gave up.
const TEMPORARY: i32 = 75;
const MAX_ATTEMPTS: u32 = 3;

/// Repeats `attempt` until the path was held or the result `is_right`; `None` if that never came about. Each other run is reported
/// under `name`, also where the test harness captures the output.
pub(crate) fn until_held<T>(
    name: &str,
    mut attempt: impl FnMut() -> T,
    is_held: impl Fn(&T) -> bool,
    is_right: impl Fn(&T) -> bool,
) -> Option<T> {
    for number in 1..=MAX_ATTEMPTS {
        let run = attempt();
        if is_held(&run) || is_right(&run) {
            return Some(run);
        }
        let then = if number < MAX_ATTEMPTS { "repeated" } else { "not judged" };
        let _ = writeln!(std::io::stderr(), "paths: this machine did not hold a run of {name}: {then}");
    }
    None
}

/// Whether the path was held, as far as `lab exec --strict` says.
pub(crate) fn is_held(ended: &Ended) -> bool {
    ended.status.code() != Some(TEMPORARY) || !ended.stderr.contains("not the path that was asked for")
}
