//! Wakes the runner, and ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A wake-up call that persists until waited for, and whether the runner is to end.
#[derive(Default)]
pub(super) struct Wake {
    called: Mutex<bool>,
    changed: Condvar,
    stopping: AtomicBool,
}

impl Wake {
    /// Ends the current wait, or the next one.
    pub(super) fn call(&self) {
        *self.called.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for a call, up to `most` if given.
    pub(super) fn wait(&self, most: Option<Duration>) {
        let mut called = self.called.lock();
        let is_quiet = |called: &mut bool| !*called;
        match most {
            None => self.changed.wait_while(&mut called, is_quiet),
            Some(most) => {
                self.changed.wait_while_for(&mut called, is_quiet, most);
            }
        }
        *called = false;
    }

    /// Says from now on that the runner is to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
