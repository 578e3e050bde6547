//! The receiving side of a connection: the segment being filled, and stall detection.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::connection::StreamConnection;
use crate::delivery_stall::MIN_DELIVERY;
use crate::sink::segment_pool::{Flow, Segment};
use crate::threads::add;

/// The wait for a free segment between checks for cancellation.
const SEGMENT_WAIT: Duration = Duration::from_millis(100);
/// A partly filled segment of a slow connection is written after this time, which bounds the loss
/// by a crash.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// A connection that receives, and passes its bytes to the writers. Dropping it flushes its
/// segment.
pub(crate) type Intake<'a> = StreamConnection<'a>;

/// The segment that a connection fills.
pub(crate) struct FillingSegment {
    segment: Segment,
    /// The time at which the segment was taken.
    since: Instant,
}

impl Intake<'_> {
    /// Returns the rate over the last round trip.
    pub(crate) fn rate(&self) -> Rate {
        self.delivery.rate
    }

    /// Returns the rate expected after a further round trip.
    pub(crate) fn expected_rate(&self) -> Rate {
        self.delivery.expected
    }

    /// Returns the RTT measured on data, queues included.
    pub(crate) fn data_rtt(&self) -> Rtt {
        self.delivery.data_rtt()
    }

    /// Returns whether the receive window was ever clamped. A clamped connection would be limited
    /// when reused for another file.
    pub(crate) fn holds_window(&self) -> bool {
        self.delivery.window_clamp().is_some()
    }

    /// Returns the memory to receive the front of `range` into; `None` if no segment becomes free
    /// within [`SEGMENT_WAIT`].
    ///
    /// `rate` is the sum over all connections of the transfer.
    ///
    /// # Errors
    /// The transfer ends, or memory is exhausted.
    pub(crate) fn try_buffer(&mut self, range: ByteRange, rate: Rate) -> Result<Option<&mut [u8]>, Failure> {
        if self.held.as_ref().is_some_and(|held| held.segment.range().end() != range.start()) {
            self.flush();
        }
        if self.held.is_none() {
            self.take_segment(range, rate)?;
        }
        let Some(FillingSegment { segment, .. }) = &mut self.held else { return Ok(None) };
        let spare = segment.spare();
        let most = spare.len().min(range.len().as_usize());
        let most = self.round.transfer.share(most);
        Ok(Some(&mut spare[..most]))
    }

    fn take_segment(&mut self, range: ByteRange, rate: Rate) -> Result<(), Failure> {
        if self.round.end.stop.is_cancelled() {
            return Err(Failure::interrupted());
        }
        let began = Instant::now();
        let taken = self.round.inlet.take(range, SEGMENT_WAIT, Flow { rate, rtt: self.delivery.rtt });
        let taken = taken.map_err(|error| Failure::memory(&error))?;
        self.held = taken.map(|segment| FillingSegment { segment, since: Instant::now() });
        let waited = began.elapsed();
        add(&self.round.transfer.waits.writer, waited);
        self.delivery.exclude(waited);
        Ok(())
    }

    /// Keeps the first `own` bytes received from `socket` into the memory of [`Self::try_buffer`];
    /// returns whether the segment is full.
    pub(super) fn keep(&mut self, own: Bytes, socket: &TcpStream) -> bool {
        self.measure(own, socket);
        self.held.as_mut().is_some_and(|FillingSegment { segment, .. }| {
            segment.fill(own.as_usize());
            segment.is_full()
        })
    }

    /// Passes the segment to the writers if it is older than [`SLOW_FLUSH`].
    pub(crate) fn flush_if_slow(&mut self) {
        self.flush_if(false);
    }

    /// Passes the segment to the writers if it `must` be, or is older than [`SLOW_FLUSH`].
    pub(super) fn flush_if(&mut self, must: bool) {
        if must || self.held.as_ref().is_some_and(|held| held.since.elapsed() > SLOW_FLUSH) {
            self.flush();
        }
    }

    /// Passes the segment to the writers, even if not full.
    pub(crate) fn flush(&mut self) {
        if let Some(FillingSegment { segment, .. }) = self.held.take() {
            self.progress().note_delivered(segment.range());
            self.round.inlet.hand_over(segment);
        }
    }

    /// Fails if the transfer is stopped or the connection has stalled; to be called at every tick
    /// without data.
    pub(crate) fn check_alive(&mut self, shown: &str) -> Result<(), Failure> {
        if self.round.end.stop.is_cancelled() {
            return Err(Failure::interrupted());
        }
        self.flush_if_slow();
        if self.delivery.stalled(self.round.options.stall, Instant::now()) {
            return Err(Failure::stalled(shown, MIN_DELIVERY, self.round.options.stall));
        }
        Ok(())
    }
}
