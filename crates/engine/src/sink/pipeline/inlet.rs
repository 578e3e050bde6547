//! The inlet of a pipeline: provides segments to fill, and passes them to the writers.

use std::io;
use std::time::Duration;

use crossbeam_channel::{SendError, Sender};
use longhaul_core::ranges::ByteRange;

use super::{Pipeline, QueuedSegment};
use crate::sink::segment_pool::{Flow, Segment};

/// The queue from receivers to writers.
pub type SegmentQueue = Sender<QueuedSegment>;

/// Accepts received bytes; the pipeline ends once the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Inlet<'a> {
    pipeline: &'a Pipeline,
    queue: SegmentQueue,
}

impl<'a> Inlet<'a> {
    pub(super) fn new(pipeline: &'a Pipeline, queue: SegmentQueue) -> Self {
        Self { pipeline, queue }
    }

    /// Returns the pipeline of this inlet.
    pub(crate) fn pipeline(&self) -> &'a Pipeline {
        self.pipeline
    }

    /// Returns only the queue, for threads that outlive this inlet: see [`Pipeline::inlet_to`].
    pub fn into_queue(self) -> SegmentQueue {
        self.queue
    }

    /// Takes a segment to fill; see
    /// [`SegmentPool::take`](crate::sink::segment_pool::SegmentPool::take).
    ///
    /// # Errors
    /// ENOMEM if the kernel has no memory for the segment.
    pub fn take(&self, range: ByteRange, patience: Duration, flow: Flow) -> io::Result<Option<Segment>> {
        self.pipeline.pool.take(range, patience, flow)
    }

    /// Passes a segment to the writers.
    pub fn hand_over(&self, segment: Segment) {
        if segment.data().is_empty() {
            return;
        }
        let backlog = &self.pipeline.backlog;
        if let Err(SendError(lost)) = self.queue.send(backlog.add(segment)) {
            // Every writer has ended.
            let QueuedSegment { segment, epoch } = lost;
            backlog.fail();
            drop(segment);
            backlog.remove(epoch);
        }
    }
}
