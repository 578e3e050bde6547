//! The inlet of a pipeline: receivers fill its segments, and pass them to the writers.

use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::{SendError, Sender};
use longhaul_core::ranges::ByteRange;

use super::{Pipeline, QueuedSegment};
use crate::sink::segment_pool::{Flow, Segment};

/// The longest wait of [`SegmentFiller::take`], so that its caller can check for cancellation.
const MAX_SEGMENT_WAIT: Duration = Duration::from_millis(100);

/// The queue from receivers to writers.
pub type SegmentQueue = Sender<QueuedSegment>;

/// Accepts received bytes; the pipeline ends once the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Inlet<'a> {
    pipeline: &'a Pipeline,
    queue: SegmentQueue,
}

/// Fills one segment after another with the bytes of a connection.
pub struct SegmentFiller<'a> {
    inlet: Inlet<'a>,
    /// The age at which a segment is passed on even if not full, which bounds the loss by a crash.
    max_age: Duration,
    /// The segment being filled, and when it was taken.
    filling: Option<(Segment, Instant)>,
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

    /// Creates the filler of a connection; it passes a segment on that is older than `max_age`.
    pub fn filler(self, max_age: Duration) -> SegmentFiller<'a> {
        SegmentFiller { inlet: self, max_age, filling: None }
    }

    /// Passes a segment to the writers.
    pub(super) fn hand_over(&self, segment: Segment) {
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

impl SegmentFiller<'_> {
    /// Returns whether a segment is being filled, and its next byte is at `at` of the file.
    pub fn continues_at(&self, at: u64) -> bool {
        self.filling.as_ref().is_some_and(|(segment, _)| segment.range().end() == at)
    }

    /// Takes a segment for the front of `range`, if one becomes free within 100 ms; returns the
    /// time waited. The segment before must have been passed on.
    ///
    /// # Errors
    /// ENOMEM if the kernel has no memory for the segment.
    pub fn take(&mut self, range: ByteRange, flow: Flow) -> io::Result<Duration> {
        let began = Instant::now();
        let taken = self.inlet.pipeline.pool.take(range, MAX_SEGMENT_WAIT, flow)?;
        let now = Instant::now();
        self.filling = taken.map(|segment| (segment, now));
        Ok(now - began)
    }

    /// Returns the memory left to fill; `None` without a segment.
    pub fn spare(&mut self) -> Option<&mut [u8]> {
        self.filling.as_mut().map(|(segment, _)| segment.spare())
    }

    /// Marks `length` bytes at the start of [`Self::spare`] as filled; returns whether the segment
    /// is full.
    pub fn fill(&mut self, length: usize) -> bool {
        self.filling.as_mut().is_some_and(|(segment, _)| {
            segment.fill(length);
            segment.is_full()
        })
    }

    /// Passes the segment to the writers if it `must` be, is full or too old; returns its range.
    pub fn flush_if(&mut self, must: bool) -> Option<ByteRange> {
        let (segment, _) = self
            .filling
            .take_if(|(segment, since)| must || segment.is_full() || since.elapsed() > self.max_age)?;
        let range = segment.range();
        self.inlet.hand_over(segment);
        Some(range)
    }
}
