//! Retries: the loop around each operation that a server or the network may fail.
//!
//! Other loops that wait are no retries: the agent's queue runs a transfer again, also after a
//! restart (`agent::runner::retries`); a round of verification or repair sends wrong ranges again;
//! a lock of an earlier upload, a listener or a database is polled, whatever the number of retries;
//! `probe` repeats a lost datagram.

use std::fmt::Display;
use std::time::Duration;

use longhaul_core::event::Event;
use longhaul_core::failure::Failure;
use longhaul_core::retry::{Backoff, Retry};

use crate::cancel::Cancel;

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
    /// Repeats an operation until it succeeds, or no retry can help, which `classify` says of its
    /// error. Both share `context`.
    ///
    /// # Errors
    /// The last error, or that of a cancellation.
    pub(crate) fn repeat<C, T, E: Display + From<Failure>>(
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
                return Err(Failure::interrupted().into());
            }
        }
    }
}
