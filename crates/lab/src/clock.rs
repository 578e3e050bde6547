//! The lab's only clock outside the tests; the model gets the time as an argument.

use std::time::{Duration, Instant, SystemTime};

use crate::model::Time;

/// Real time as the links see it.
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

/// Returns the time of day in seconds since 1970, UTC; 0 where the machine's clock stands before.
pub(crate) fn since_1970() -> f64 {
    time_of_day().as_secs_f64()
}

/// Returns the time of day since 1970, UTC; zero where the machine's clock stands before.
#[expect(clippy::disallowed_methods, reason = "only written to results and captures")]
pub(crate) fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
