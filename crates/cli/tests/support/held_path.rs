//! Repeats a run where this machine did not hold the emulated path, and reports it.

use std::io::Write;

use super::program::Ended;

/// EX_TEMPFAIL: `lab exec --strict` did not hold the path, or its command gave up.
const TEMPORARY: i32 = 75;
const MAX_ATTEMPTS: u32 = 3;

/// Returns the time of all CPUs since the start of this machine, and that of idle ones, in clock
/// ticks (proc_stat(5)).
fn cpu_ticks() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<u64> =
        text.lines().next().unwrap().split_whitespace().skip(1).map(|ticks| ticks.parse().unwrap()).collect();
    [ticks[..8].iter().sum(), ticks[3] + ticks[4]]
}

/// Repeats `attempt` until its result `is_right`, or the path was held on a machine with idle CPUs;
/// `None` if that never came about. Each other run is reported under `name`, also where the test
/// harness captures the output.
pub(crate) fn until_held<T>(
    name: &str,
    mut attempt: impl FnMut() -> T,
    is_held: impl Fn(&T) -> bool,
    is_right: impl Fn(&T) -> bool,
) -> Option<T> {
    for number in 1..=MAX_ATTEMPTS {
        let before = cpu_ticks();
        let run = attempt();
        let [all, idle] = [0, 1].map(|index| cpu_ticks()[index].saturating_sub(before[index]));
        // Programs that wait for a CPU change results while the path itself is held.
        let was_idle = idle * 10 > all;
        if is_held(&run) && was_idle || is_right(&run) {
            return Some(run);
        }
        let then = if number < MAX_ATTEMPTS { "repeated" } else { "not judged" };
        let _ = writeln!(std::io::stderr(), "paths: this machine did not hold a run of {name}: {then}");
    }
    None
}

/// Whether the path was held, as far as `lab exec --strict` says.
pub(crate) fn is_held(ended: &Ended) -> bool {
    ended.status.code() != Some(TEMPORARY)
        || !ended.stderr.contains("not exactly the path that was asked for")
}
