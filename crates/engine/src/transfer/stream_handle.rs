//! A stream's handle for other threads: its number, and flags that drain it or cancel its wait.

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::schedule::WorkerId;
use parking_lot::Mutex;

use crate::cancel::Cancel;

/// The number of a stream, and flags that drain it or cancel its wait.
#[derive(Debug)]
pub(crate) struct StreamHandle {
    pub(crate) id: WorkerId,
    /// The index of the stream's source.
    pub(crate) source: usize,
    draining: AtomicBool,
    stop: Cancel,
    /// Cancels the stream's current wait only.
    wait: Mutex<Cancel>,
}

impl StreamHandle {
    pub(crate) fn new(id: WorkerId, source: usize, stop: &Cancel) -> Self {
        Self {
            id,
            source,
            draining: AtomicBool::new(false),
            stop: stop.clone(),
            wait: Mutex::new(stop.child()),
        }
    }

    /// Requests the stream to stop after its outstanding requests, or withdraws that request.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    /// Returns whether the stream drains, and so must not send further requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Cancels the stream's current wait.
    pub(crate) fn interrupt(&self) {
        self.wait.lock().cancel();
    }

    /// Creates the flag of the next wait; for a draining stream it is already raised.
    pub(super) fn renew(&self) -> Cancel {
        let mut wait = self.wait.lock();
        *wait = self.stop.child();
        // The call that started draining cancelled only the earlier wait.
        if self.is_draining() {
            wait.cancel();
        }
        wait.clone()
    }
}
