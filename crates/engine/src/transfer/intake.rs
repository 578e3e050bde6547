//! The receiving side of a connection: the memory to receive into, and stall detection.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::connection::StreamConnection;
use crate::delivery_stall::MIN_DELIVERY;
use crate::sink::segment_pool::Flow;
use crate::threads::add;

/// A partly filled segment of a slow connection is written after this time.
pub(super) const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// A connection that receives, and passes its bytes to the writers. Dropping it flushes its
/// segment.
pub(crate) type Intake<'a> = StreamConnection<'a>;

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
    /// within 100 ms.
    ///
    /// `rate` is the sum over all connections of the transfer.
    ///
    /// # Errors
    /// The transfer ends, or memory is exhausted.
    pub(crate) fn try_buffer(&mut self, range: ByteRange, rate: Rate) -> Result<Option<&mut [u8]>, Failure> {
        if !self.held.continues_at(range.start()) {
            self.flush();
            if self.round.end.stop.is_cancelled() {
                return Err(Failure::interrupted());
            }
            let waited = self.held.take(range, Flow { rate, rtt: self.delivery.rtt });
            let waited = waited.map_err(|error| Failure::memory(&error))?;
            add(&self.round.transfer.waits.writer, waited);
            self.delivery.exclude(waited);
        }
        Ok(self.held.spare().map(|spare| {
            let most = spare.len().min(range.len().as_usize());
            &mut spare[..self.round.transfer.share(most)]
        }))
    }

    /// Keeps the first `own` bytes received from `socket` into the memory of [`Self::try_buffer`];
    /// returns whether the segment is full.
    pub(super) fn keep(&mut self, own: Bytes, socket: &TcpStream) -> bool {
        self.measure(own, socket);
        self.held.fill(own.as_usize())
    }

    /// Passes the segment to the writers if it `must` be, is full, or is older than [`SLOW_FLUSH`].
    pub(crate) fn flush_if(&mut self, must: bool) {
        if let Some(range) = self.held.flush_if(must) {
            self.progress().note_delivered(range);
        }
    }

    /// Passes the segment to the writers, even if not full.
    pub(crate) fn flush(&mut self) {
        self.flush_if(true);
    }

    /// Fails if the transfer is stopped or the connection has stalled; to be called at every tick
    /// without data.
    pub(crate) fn check_alive(&mut self, shown: &str) -> Result<(), Failure> {
        if self.round.end.stop.is_cancelled() {
            return Err(Failure::interrupted());
        }
        self.flush_if(false);
        if self.delivery.stalled(self.round.options.stall, Instant::now()) {
            return Err(Failure::stalled(shown, MIN_DELIVERY, self.round.options.stall));
        }
        Ok(())
    }
}
