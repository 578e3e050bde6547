//! A wait that ends in time: by success, by its limit, or because the user stopped the transfer.

use std::time::{Duration, Instant};

use super::error::HttpError;
use super::safe_url::UrlAndPeer;
use crate::cancel::Cancel;

/// A limit in time and a flag to stop, looked at between the ticks of a blocking call.
#[derive(Debug, Clone)]
pub(super) struct Wait<'a> {
    cancel: &'a Cancel,
    deadline: Instant,
    pub(super) limit: Duration,
}

impl<'a> Wait<'a> {
    /// Starts waiting now, for `limit` at most.
    pub(super) fn new(cancel: &'a Cancel, limit: Duration) -> Self {
        let now = Instant::now();
        // A limit past the end of the clock is none; a year is as good.
        let deadline = now.checked_add(limit).unwrap_or(now + Duration::from_secs(31_536_000));
        Self { cancel, deadline, limit }
    }

    /// Fails once the transfer is cancelled.
    pub(super) fn check_cancel(&self) -> Result<(), HttpError> {
        if self.cancel.is_cancelled() { Err(HttpError::Cancelled) } else { Ok(()) }
    }

    /// Returns how much time is left.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Fails once the time is over or the transfer cancelled; `step` completes "did not finish ...".
    pub(super) fn check(&self, place: &UrlAndPeer, step: &'static str) -> Result<(), HttpError> {
        self.check_cancel()?;
        if self.left().is_zero() {
            return Err(HttpError::Timeout { place: place.clone(), step, waited: self.limit });
        }
        Ok(())
    }
}
