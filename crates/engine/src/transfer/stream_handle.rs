//! What other threads hold of a stream: its number, and what ends it or its wait.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::schedule::WorkerId;

use crate::cancel::Cancel;
use crate::threads::lock;

/// The stream's number, and what ends it or its wait.
#[derive(Debug)]
pub(crate) struct StreamHandle {
    pub(crate) id: WorkerId,
    /// The index of its source.
    pub(crate) source: usize,
    draining: AtomicBool,
    stop: Cancel,
    /// Ends what the stream waits for now, and nothing later.
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

    /// Asks the stream to stop after its outstanding requests, or no longer.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    /// Returns whether the stream is to request nothing more.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Ends what the stream waits for now.
    pub(crate) fn interrupt(&self) {
        lock(&self.wait).cancel();
    }

    /// Makes the flag of the next wait; a draining stream's is set already.
    pub(super) fn renew(&self) -> Cancel {
        let mut wait = lock(&self.wait);
        *wait = self.stop.child();
        // Whatever began the draining has interrupted the wait before.
        if self.is_draining() {
            wait.cancel();
        }
        wait.clone()
    }
}
