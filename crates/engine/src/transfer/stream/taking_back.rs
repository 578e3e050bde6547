//! Takes back delivered bytes that must not stay in the file.

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;

use super::Stream;
use crate::sink::pipeline::{Inlet, Pipeline};

impl Stream<'_> {
    /// Forgets all delivered bytes once they are written: bytes of an earlier response must not be
    /// mixed with those of a later one.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) fn forget_delivered(&mut self) -> Result<(), Failure> {
        self.forget(Pipeline::written_ranges)
    }

    /// Requeues delivered bytes that may belong to another version of the file.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) fn take_back(&mut self, ranges: &RangeSet) -> Result<(), Failure> {
        if ranges.total() == Bytes::ZERO {
            self.flush();
            return Ok(());
        }
        self.forget(|_| ranges.clone())?;
        if self.intake.inlet().is_some() {
            ranges.iter().for_each(|range| self.progress().forget_delivered_in(range));
            self.requeue(ranges.iter());
        }
        Ok(())
    }

    /// Forgets ranges once all delivered bytes are written.
    fn forget(&mut self, ranges: impl FnOnce(&Pipeline) -> RangeSet) -> Result<(), Failure> {
        self.flush();
        let Some(pipeline) = self.intake.inlet().map(Inlet::pipeline) else { return Ok(()) };
        if !pipeline.drain() {
            return Err(Failure::interrupted());
        }
        ranges(pipeline).iter().try_for_each(|range| pipeline.forget(range)).map_err(|error| {
            let message = error.to_string();
            self.transfer.fail(error.into());
            Failure::new(FailureKind::Disk, message).caused_by(Cause::Interrupted)
        })
    }
}
