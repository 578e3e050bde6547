//! The reader's end of the ring of packets in transit.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::Thread;

use longhaul_sys::ring::Producer;

use crate::model::Time;

use super::WriterIdle;

/// Puts frames into the ring and wakes a waiting writer.
pub(super) struct Outlet {
    pub(super) ring: Producer,
    pub(super) idle: Arc<WriterIdle>,
    pub(super) writer: Thread,
}

impl Outlet {
    /// Publishes the frame written to the last reserved slot.
    pub(super) fn commit(&mut self, leaves: Time, len: usize) {
        self.ring.commit(leaves.as_nanos(), len);
        self.wake_writer();
    }

    /// Copies a frame into the ring; returns false if the ring is full.
    pub(super) fn put(&mut self, leaves: Time, frame: &[u8]) -> bool {
        let Some(slot) = self.ring.reserve(frame.len()) else { return false };
        slot.copy_from_slice(frame);
        self.commit(leaves, frame.len());
        true
    }

    fn wake_writer(&self) {
        // Pairs with the writer's fence: either the writer sees the record, or this thread sees that the writer waits.
        fence(Ordering::SeqCst);
        if self.idle.0.load(Ordering::Relaxed) {
            self.idle.0.store(false, Ordering::Relaxed);
            self.writer.unpark();
        }
    }
}
