//! The clock of leases.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since boot with that of suspensions, in which leases expire too;
/// [`Instant`](std::time::Instant) stands still then.
pub fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
