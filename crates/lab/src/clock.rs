//! The lab's only clock outside the tests; the model gets the time as an argument.

use std::time::{Instant, SystemTime};

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
#[expect(clippy::disallowed_methods, reason = "only told to whoever reads the results")]
pub(crate) fn since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
