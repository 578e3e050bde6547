//! The one place outside the tests that reads the clock: the model is handed the time.

use std::time::Instant;

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
