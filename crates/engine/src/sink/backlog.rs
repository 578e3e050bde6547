//! The segments passed to the writers and not yet written.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::segment_pool::Segment;

/// Counts queued segments, and records whether writing has failed.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    state: Mutex<BacklogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BacklogState {
    /// The current epoch; each drain starts a new one.
    epoch: u64,
    /// The number of unwritten segments per epoch, oldest first.
    segments: VecDeque<(u64, usize)>,
    failed: bool,
}

/// A segment in the writers' queue.
#[derive(Debug)]
pub struct QueuedSegment {
    pub(super) segment: Segment,
    pub(super) epoch: u64,
}

impl Backlog {
    /// Counts a segment before it is queued.
    pub(super) fn add(&self, segment: Segment) -> QueuedSegment {
        let mut state = self.state.lock();
        let epoch = state.epoch;
        match state.segments.back_mut() {
            Some((last, count)) if *last == epoch => *count += 1,
            _ => state.segments.push_back((epoch, 1)),
        }
        QueuedSegment { segment, epoch }
    }

    /// Stops counting a segment of this epoch, which was written or is lost.
    pub(super) fn remove(&self, epoch: u64) {
        let mut state = self.state.lock();
        if let Some((_, count)) = state.segments.iter_mut().find(|(of, _)| *of == epoch) {
            *count -= 1;
            if *count == 0 {
                state.segments.retain(|(_, count)| *count > 0);
                self.changed.notify_all();
            }
        }
    }

    /// Records that writing has failed.
    pub(super) fn fail(&self) {
        self.state.lock().failed = true;
        self.changed.notify_all();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().failed
    }

    #[cfg(test)]
    pub(super) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().segments.is_empty()
    }

    /// Returns the number of segments queued or being written.
    pub(super) fn count(&self) -> usize {
        self.state.lock().segments.iter().map(|(_, count)| count).sum()
    }

    /// Waits until every segment added so far is removed, but not for later ones; returns `false`
    /// as soon as writing has failed.
    pub(super) fn drain(&self) -> bool {
        let mut state = self.state.lock();
        let last = state.epoch;
        state.epoch += 1;
        let busy = |state: &mut BacklogState| {
            !state.failed && state.segments.front().is_some_and(|(epoch, _)| *epoch <= last)
        };
        self.changed.wait_while(&mut state, busy);
        !state.failed
    }
}
