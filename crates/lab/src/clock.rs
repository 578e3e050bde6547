//! The lab's only clock outside tests; the model receives the time as an argument.

use std::time::{Duration, Instant, SystemTime};

use crate::model::Time;

/// Monotonic time since the start of a lab's links.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "real time enters the lab here")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time::START + self.0.elapsed()
    }
}

/// Returns the time of day in seconds since 1970, UTC; 0 if the host's clock is earlier.
pub(crate) fn since_1970() -> f64 {
    time_of_day().as_secs_f64()
}

/// Returns the time of day since 1970, UTC; zero if the host's clock is earlier.
#[expect(clippy::disallowed_methods, reason = "only written to results and captures")]
pub(crate) fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
