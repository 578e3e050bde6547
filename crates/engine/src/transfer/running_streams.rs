//! The streams of a transfer that are running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longhaul_core::schedule::WorkerId;
use parking_lot::Mutex;

use crate::cancel::Cancel;

/// The running streams of all sources, including draining ones.
#[derive(Default)]
pub(crate) struct RunningStreams {
    handles: Mutex<Vec<Arc<StreamHandle>>>,
    /// The number of sources being described and compared; their streams may still take over
    /// leases.
    joining: AtomicUsize,
    /// The source that joined without comparison because no bytes existed. No second source may do
    /// so while this one is in use.
    pub(crate) joined_alone: Mutex<Option<usize>>,
}

impl RunningStreams {
    /// Adds streams.
    pub(super) fn register(&self, streams: &[Arc<StreamHandle>]) {
        self.handles.lock().extend_from_slice(streams);
    }

    /// Removes a stream that has ended or is about to end.
    pub(crate) fn unregister(&self, stream: WorkerId) {
        self.handles.lock().retain(|other| other.id != stream);
    }

    /// Returns the running streams.
    pub(crate) fn all(&self) -> Vec<Arc<StreamHandle>> {
        self.handles.lock().clone()
    }

    /// Returns the number of running streams.
    pub(crate) fn count(&self) -> usize {
        self.handles.lock().len()
    }

    /// Removes a stream if another one can take over its leases; returns whether it was removed.
    pub(crate) fn leave_to_others(&self, stream: WorkerId) -> bool {
        let mut streams = self.handles.lock();
        let others =
            self.are_joining() || streams.iter().any(|other| other.id != stream && !other.is_draining());
        if others {
            streams.retain(|other| other.id != stream);
        }
        others
    }

    /// Increments (`joins`) or decrements the number of sources being described and compared.
    pub(crate) fn set_joining(&self, joins: bool) {
        let change = if joins { AtomicUsize::fetch_add } else { AtomicUsize::fetch_sub };
        change(&self.joining, 1, Ordering::Relaxed);
    }

    pub(super) fn are_joining(&self) -> bool {
        self.joining.load(Ordering::Relaxed) > 0
    }

    /// Cancels the current wait of a stream.
    pub(crate) fn interrupt(&self, stream: WorkerId) {
        self.handles.lock().iter().filter(|other| other.id == stream).for_each(|other| other.interrupt());
    }
}

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
