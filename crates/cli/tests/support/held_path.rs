//! Repeats a transfer where this machine did not hold the emulated path.

use std::process::Output;

/// EX_TEMPFAIL: `lab exec --strict` did not hold the path, or its command gave up.
const TEMPORARY: i32 = 75;

/// Returns the output of `lab exec --strict`, of the third attempt at the latest where the path was not held and the output is not `is_right`.
pub(crate) fn repeat_until_held(
    mut attempt: impl FnMut() -> Output,
    is_right: impl Fn(&Output) -> bool,
) -> Output {
    let mut output = attempt();
    for _ in 0..2 {
        if !is_held(&output) && !is_right(&output) {
            output = attempt();
        }
    }
    output
}

/// Whether the path was held, as far as `lab exec --strict` says.
pub(crate) fn is_held(output: &Output) -> bool {
    output.status.code() != Some(TEMPORARY)
        || !String::from_utf8_lossy(&output.stderr).contains("not the path that was asked for")
}
