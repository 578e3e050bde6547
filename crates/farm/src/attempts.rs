//! When a unit that fails is given up.

/// The failures, on all workers together, after which a unit is given up.
pub(crate) const MAX_ATTEMPTS: u32 = 3;

/// Returns whether a unit that has failed so many times is given up.
pub(crate) fn is_given_up(failures: u32) -> bool {
    failures >= MAX_ATTEMPTS
}
