//! The reader's end of the ring of packets under way.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::Thread;

use longhaul_sys::ring::Producer;

use crate::model::Time;

use super::Idle;

/// Puts frames into the ring and wakes the writer where that waits.
pub(super) struct Outlet {
    pub(super) ring: Producer,
    pub(super) idle: Arc<Idle>,
    pub(super) writer: Thread,
}

impl Outlet {
    /// Hands over a frame that was written to the slot reserved last.
    pub(super) fn commit(&mut self, leaves: Time, len: usize) {
        self.ring.commit(leaves.as_nanos(), len);
        self.wake_writer();
    }

    /// Copies a frame into the ring; says whether there was room.
    pub(super) fn put(&mut self, leaves: Time, frame: &[u8]) -> bool {
        let Some(slot) = self.ring.reserve(frame.len()) else { return false };
        slot.copy_from_slice(frame);
        self.commit(leaves, frame.len());
        true
    }

    fn wake_writer(&self) {
        // Pairs with the writer's fence: either it sees the record, or we see that it waits.
        fence(Ordering::SeqCst);
        if self.idle.0.load(Ordering::Relaxed) {
            self.idle.0.store(false, Ordering::Relaxed);
            self.writer.unpark();
        }
    }
}
