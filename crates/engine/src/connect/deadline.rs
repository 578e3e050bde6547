//! The end of a wait: by its limit in time, or because the transfer is cancelled.

use std::time::{Duration, Instant};

use super::error::ConnectError;
use crate::cancel::Cancel;

/// A limit in time and a cancel flag, both checked between the ticks of a blocking call.
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
        // A limit past the end of the clock becomes a year.
        let end = now.checked_add(limit).unwrap_or(now + Duration::from_secs(31_536_000));
        Self { cancel, end, limit }
    }

    /// Fails once the transfer is cancelled.
    pub(crate) fn check_cancel(&self) -> Result<(), ConnectError> {
        if self.cancel.is_cancelled() { Err(ConnectError::Cancelled) } else { Ok(()) }
    }

    /// Returns how much time is left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}
