//! The streams of a transfer that are running.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::schedule::WorkerId;
use parking_lot::Mutex;

use super::stream_handle::StreamHandle;
use crate::cancel::Cancel;

/// The running streams of all sources, including draining ones.
#[derive(Default)]
pub(crate) struct RunningStreams {
    pub(super) handles: Mutex<Vec<Arc<StreamHandle>>>,
    /// The length of `handles`, which is read for every segment.
    count: AtomicUsize,
    next_number: AtomicUsize,
    /// The number of sources being described and compared; their streams may still take over
    /// leases.
    joining: AtomicUsize,
    /// The source that joined without comparison because no bytes existed. No second source may do
    /// so while this one is in use.
    pub(crate) joined_alone: Mutex<Option<usize>>,
}

impl RunningStreams {
    /// Creates handles for streams of a source, which `stop` ends; numbers are unique within a transfer.
    pub(crate) fn register(&self, source: usize, count: usize, stop: &Cancel) -> Vec<Arc<StreamHandle>> {
        let mut streams = self.handles.lock();
        let first = self.next_number.fetch_add(count, Ordering::Relaxed);
        let handle = |id| Arc::new(StreamHandle::new(id, source, stop));
        let handles: Vec<_> = (first..first + count).map(handle).collect();
        streams.extend(handles.iter().cloned());
        self.count.store(streams.len(), Ordering::Relaxed);
        handles
    }

    /// Removes a stream that has ended or is about to end.
    pub(crate) fn unregister(&self, stream: WorkerId) {
        let mut streams = self.handles.lock();
        streams.retain(|other| other.id != stream);
        self.count.store(streams.len(), Ordering::Relaxed);
    }

    /// Returns the running streams.
    pub(crate) fn all(&self) -> Vec<Arc<StreamHandle>> {
        self.handles.lock().clone()
    }

    /// Returns the number of running streams.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Removes a stream if another one can take over its leases; returns whether it was removed.
    pub(crate) fn leave_to_others(&self, stream: WorkerId) -> bool {
        let mut streams = self.handles.lock();
        let others =
            self.are_joining() || streams.iter().any(|other| other.id != stream && !other.is_draining());
        if others {
            streams.retain(|other| other.id != stream);
            self.count.store(streams.len(), Ordering::Relaxed);
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

    /// Returns a new connection number, unique within the transfer.
    pub(super) fn next_number(&self) -> usize {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Cancels the current wait of a stream.
    pub(crate) fn interrupt(&self, stream: WorkerId) {
        self.handles.lock().iter().filter(|other| other.id == stream).for_each(|other| other.interrupt());
    }
}
