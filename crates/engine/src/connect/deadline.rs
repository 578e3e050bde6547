//! The end of a wait: a time limit or a cancellation.

use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;

use crate::cancel::Cancel;

/// A time limit and a cancel flag, both checked between the ticks of a blocking call.
#[derive(Debug, Clone)]
pub(crate) struct Deadline<'a> {
    cancel: &'a Cancel,
    end: Instant,
    pub(crate) limit: Duration,
}

impl<'a> Deadline<'a> {
    /// Sets the end to `limit` from now.
    pub(crate) fn new(cancel: &'a Cancel, limit: Duration) -> Self {
        let now = Instant::now();
        // A limit beyond the clock's range becomes a year.
        let end = now.checked_add(limit).unwrap_or(now + Duration::from_secs(31_536_000));
        Self { cancel, end, limit }
    }

    /// Returns the cancel flag.
    pub(crate) fn cancel(&self) -> &'a Cancel {
        self.cancel
    }

    /// Fails once the transfer is cancelled.
    pub(crate) fn check_cancel(&self) -> Result<(), Failure> {
        if self.cancel.is_cancelled() { Err(Failure::interrupted()) } else { Ok(()) }
    }

    /// Returns the time left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}
