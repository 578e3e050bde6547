//! Wakes the runner.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock;

/// A wake-up call that persists until waited for.
#[derive(Default)]
pub(super) struct Wake {
    called: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// Ends the current wait, or the next one.
    pub(super) fn call(&self) {
        *lock(&self.called) = true;
        self.changed.notify_all();
    }

    /// Waits for a call, up to `most` if given.
    pub(super) fn wait(&self, most: Option<Duration>) {
        let called = lock(&self.called);
        let quiet = |called: &mut bool| !*called;
        let mut called = match most {
            None => self.changed.wait_while(called, quiet).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                let waited = self.changed.wait_timeout_while(called, most, quiet);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        *called = false;
    }
}
