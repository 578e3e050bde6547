//! The end of a wait: by its limit in time, or because the transfer is cancelled.

use std::time::{Duration, Instant};

use super::error::HttpError;
use super::safe_url::UrlAndPeer;
use crate::cancel::Cancel;

/// A limit in time and a cancel flag, both checked between the ticks of a blocking call.
#[derive(Debug, Clone)]
pub(super) struct Deadline<'a> {
    cancel: &'a Cancel,
    end: Instant,
    pub(super) limit: Duration,
}

impl<'a> Deadline<'a> {
    /// Sets the end to `limit` from now.
    pub(super) fn new(cancel: &'a Cancel, limit: Duration) -> Self {
        let now = Instant::now();
        // A limit past the end of the clock becomes a year.
        let end = now.checked_add(limit).unwrap_or(now + Duration::from_secs(31_536_000));
        Self { cancel, end, limit }
    }

    /// Fails once the transfer is cancelled.
    pub(super) fn check_cancel(&self) -> Result<(), HttpError> {
        if self.cancel.is_cancelled() { Err(HttpError::Cancelled) } else { Ok(()) }
    }

    /// Returns how much time is left.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Fails once the time is over or the transfer cancelled; `step` completes "did not finish ...".
    pub(super) fn check(&self, at: &UrlAndPeer, step: &'static str) -> Result<(), HttpError> {
        self.check_cancel()?;
        if self.left().is_zero() {
            return Err(HttpError::Timeout { at: at.clone(), step, waited: self.limit });
        }
        Ok(())
    }
}
