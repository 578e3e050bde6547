//! The receiving side of one connection: the segment being filled, the rate, and stall detection.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::event::Event;
use longhaul_core::failure::Failure;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::tcp_info;

use super::recv_buffer;
use super::state::{SourceProgress, TransferState};
use super::stream::StreamOptions;
use crate::delivery_meter::{DeliveryMeter, MIN_DELIVERY};
use crate::sink::pipeline::Inlet;
use crate::sink::segment_pool::{Flow, Segment};
use crate::threads::add;

/// The wait for a free segment between checks for cancellation.
const SEGMENT_WAIT: Duration = Duration::from_millis(100);
/// A partly filled segment of a slow connection is written after this time, which bounds the loss
/// by a crash.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// Passes one connection's bytes to the writers. Dropping it flushes its segment.
pub(crate) struct Intake<'a> {
    /// The connection's number in events and samples.
    id: usize,
    /// The index of the connection's source.
    source: usize,
    transfer: &'a TransferState<'a>,
    /// The inlet of the pipeline; `None` if the connection sends.
    inlet: Option<Inlet<'a>>,
    options: StreamOptions,
    connected: bool,
    segment: Option<Segment>,
    /// The time at which the current segment was taken.
    segment_since: Instant,
    pub(super) delivery: DeliveryMeter,
}

impl<'a> Intake<'a> {
    pub(super) fn new(
        id: usize,
        source: usize,
        transfer: &'a TransferState<'a>,
        inlet: Option<Inlet<'a>>,
        options: StreamOptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            id,
            source,
            transfer,
            inlet,
            options,
            connected: false,
            segment: None,
            segment_since: now,
            delivery: DeliveryMeter::new(Rtt::default(), false, now),
        }
    }

    fn progress(&self) -> &'a SourceProgress {
        &self.transfer.sources[self.source]
    }

    /// Starts measuring a new connection, one of `streams`; returns its RTT.
    pub(crate) fn connected(&mut self, socket: &TcpStream, peer: SocketAddr, streams: usize) -> Rtt {
        let rtt = tcp_info::read(socket).ok().and_then(|info| info.rtt());
        self.progress().sockets.add(self.id, socket);
        self.transfer.emit(&Event::Connected { stream: self.id, peer, rtt });
        let rtt = rtt.unwrap_or_default();
        let delivery = DeliveryMeter::new(rtt, self.options.hold_window, Instant::now());
        self.delivery = match streams {
            ..=1 => delivery,
            several => delivery.of_several(recv_buffer::share_in_flight(rtt, several)),
        };
        self.connected = true;
        rtt
    }

    /// Ends the connection; passes its segment to the writers.
    pub(crate) fn disconnected(&mut self) {
        self.flush();
        if std::mem::take(&mut self.connected) {
            self.progress().sockets.remove(self.id);
            self.transfer.emit(&Event::Closed { stream: self.id });
        }
    }

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
        if self.segment.as_ref().is_some_and(|segment| segment.range().end() != range.start()) {
            self.flush();
        }
        if self.segment.is_none() && !self.take_segment(range, rate)? {
            return Ok(None);
        }
        let Some(segment) = &mut self.segment else { return Err(Failure::interrupted()) };
        let spare = segment.spare();
        let most = spare.len().min(range.len().as_usize());
        let most = self.transfer.read_at_most(most);
        Ok(Some(&mut spare[..most]))
    }

    fn take_segment(&mut self, range: ByteRange, rate: Rate) -> Result<bool, Failure> {
        if self.transfer.end.stop.is_cancelled() {
            return Err(Failure::interrupted());
        }
        let began = Instant::now();
        let Some(inlet) = &self.inlet else { return Err(Failure::interrupted()) };
        let taken = inlet.take(range, SEGMENT_WAIT, Flow { rate, rtt: self.delivery.rtt });
        self.segment = taken.map_err(|error| Failure::memory(&error))?;
        self.segment_since = Instant::now();
        let waited = began.elapsed();
        add(&self.transfer.waits.writer, waited);
        self.delivery.exclude(waited);
        Ok(self.segment.is_some())
    }

    /// Keeps the first `own` bytes received into the memory of [`Self::try_buffer`]; returns
    /// whether the segment is full.
    pub(super) fn keep(&mut self, own: usize) -> bool {
        self.segment.as_mut().is_some_and(|segment| {
            segment.fill(own);
            segment.is_full()
        })
    }

    /// Counts `own` bytes received from `socket`.
    pub(super) fn measure(&mut self, own: Bytes, socket: &TcpStream) {
        let share = self.progress().window_share(self.delivery.rtt);
        self.delivery.add(own, share, socket, Instant::now());
        self.progress().note_window_clamp(self.delivery.window_clamp());
    }

    /// Passes the segment to the writers if it is older than [`SLOW_FLUSH`].
    pub(crate) fn flush_if_slow(&mut self) {
        if self.segment_since.elapsed() > SLOW_FLUSH {
            self.flush();
        }
    }

    /// Passes the segment to the writers, even if not full.
    pub(crate) fn flush(&mut self) {
        if let (Some(segment), Some(inlet)) = (self.segment.take(), &self.inlet) {
            self.progress().note_delivered(segment.range());
            inlet.hand_over(segment);
        }
    }

    /// Fails if the transfer is stopped or the connection has stalled; to be called at every tick
    /// without data.
    pub(crate) fn check_alive(&mut self, shown: &str) -> Result<(), Failure> {
        if self.transfer.end.stop.is_cancelled() {
            return Err(Failure::interrupted());
        }
        self.flush_if_slow();
        if self.delivery.stalled(self.options.stall, Instant::now()) {
            return Err(Failure::stalled(shown, MIN_DELIVERY, self.options.stall));
        }
        Ok(())
    }

    /// Returns the inlet of the pipeline.
    pub(super) fn inlet(&self) -> Option<&Inlet<'a>> {
        self.inlet.as_ref()
    }
}

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        self.disconnected();
    }
}
