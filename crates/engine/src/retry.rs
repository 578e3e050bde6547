//! Retries: the loop around each operation that a server or the network may fail.

use std::fmt::Display;
use std::time::Duration;

use longhaul_core::event::Event;
use longhaul_core::retry::Backoff;

use crate::cancel::Cancel;
use crate::source::http::HttpError;

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// A retry cannot help.
    Never,
    /// Retry after a backoff.
    Backoff,
    /// Retry after at least this time, requested by the server.
    After(Duration),
    /// Retry at once; does not count as a failure.
    AtOnce,
}

impl Retry {
    /// Returns the retry after a refusal: a server that is busy or fails for now may answer later, and states when in Retry-After.
    pub(crate) fn of_status(status: u16, retry_after: Option<Duration>) -> Self {
        match status {
            408 | 425 | 429 | 500 | 502..=504 => retry_after.map_or(Self::Backoff, Self::After),
            _ => Self::Never,
        }
    }

    /// Returns whether `backoff` has an attempt left for it.
    pub(crate) fn is_permitted(self, backoff: &Backoff) -> bool {
        match self {
            Self::Never => false,
            Self::Backoff => backoff.permits(None),
            Self::After(wait) => backoff.permits(Some(wait)),
            Self::AtOnce => true,
        }
    }

    /// Returns no retry where `is_final`.
    pub(crate) fn unless(self, is_final: bool) -> Self {
        if is_final { Self::Never } else { self }
    }
}

/// A wait that may end early.
pub(crate) trait Rest {
    /// Waits; returns whether the operation was cancelled meanwhile.
    fn rest(&self, wait: Duration) -> bool;
}

impl Rest for Cancel {
    fn rest(&self, wait: Duration) -> bool {
        self.sleep(wait)
    }
}

/// The retries of one operation.
pub(crate) struct Retries<'a> {
    /// The number of failures in a row after which the operation fails.
    pub(crate) most: u32,
    /// The stream whose operation it is.
    pub(crate) stream: usize,
    /// Receives [`Event::Retrying`] before each wait.
    pub(crate) emit: &'a dyn Fn(&Event),
    pub(crate) rest: &'a dyn Rest,
}

impl Retries<'_> {
    /// Repeats an operation until it succeeds, or no retry can help, which `classify` says of its error. Both share `context`.
    ///
    /// # Errors
    /// The last error, or [`HttpError::Cancelled`].
    pub(crate) fn repeat<C, T, E: Display + From<HttpError>>(
        &self,
        context: &mut C,
        mut attempt: impl FnMut(&mut C, &mut Backoff) -> Result<T, E>,
        mut classify: impl FnMut(&mut C, &E) -> Retry,
    ) -> Result<T, E> {
        let mut backoff = Backoff::new(self.most);
        loop {
            let error = match attempt(context, &mut backoff) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let asked = match classify(context, &error) {
                Retry::Never => return Err(error),
                Retry::AtOnce => continue,
                Retry::Backoff => None,
                Retry::After(wait) => Some(wait),
            };
            let Some(wait) = backoff.failed(asked, fastrand::f64()) else { return Err(error) };
            (self.emit)(&Event::Retrying { stream: self.stream, reason: error.to_string(), wait });
            if self.rest.rest(wait) {
                return Err(HttpError::Cancelled.into());
            }
        }
    }
}
