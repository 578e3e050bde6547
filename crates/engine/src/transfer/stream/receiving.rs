//! Delivers the bytes that a stream receives, and takes back those that must not stay in the file.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_core::buffer_plan;
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::Stream;
use crate::sink::pipeline::Pipeline;
use crate::transfer::intake::Intake;

impl Stream<'_> {
    /// Returns the memory to receive the front of `range` into; waits for a free segment.
    ///
    /// # Errors
    /// The round ends, or memory is exhausted.
    pub(crate) fn buffer(&mut self, range: ByteRange) -> Result<&mut [u8], Failure> {
        // Assumes that the other streams deliver at about the rate of this one.
        let streams = self.round.running.count() as u64;
        let rate = Rate::bits_per_sec(self.connection.rate().as_bits_per_sec().saturating_mul(streams));
        while self.connection.try_buffer(range, rate)?.is_none() {
            self.keep_alive();
        }
        self.connection.try_buffer(range, rate)?.ok_or_else(Failure::interrupted)
    }

    /// Counts `bytes` received from `socket` into the memory of [`Self::buffer`]; returns how many
    /// leading bytes are kept (the rest was stolen meanwhile), and whether the segment is full.
    pub(crate) fn delivered(&mut self, bytes: usize, left: ByteRange, socket: &TcpStream) -> (Bytes, bool) {
        let arrived = ByteRange::with_len(left.start(), Bytes::new(bytes as u64));
        let own = self.mark_moved(arrived, self.connection.rate());
        let full = self.connection.keep(own, socket);
        self.count(own);
        let done = full || left.len() == own || own < arrived.len();
        self.connection.flush_if(done);
        (own, done)
    }

    /// Counts kept bytes; waits as `--limit` requires.
    fn count(&mut self, own: Bytes) {
        self.gained += own;
        self.round.transfer.add_received(self.handle.source, own);
        if self.round.transfer.wait_for_limit(own, self.stop()) {
            self.keep_alive();
        }
    }

    /// Counts bytes received from `socket` that are there already; they show that the connection is
    /// alive.
    pub(crate) fn discarded(&mut self, bytes: usize, socket: &TcpStream) {
        let bytes = Bytes::new(bytes as u64);
        self.connection.measure(bytes, socket);
        self.round.transfer.wait_for_limit(bytes, self.stop());
        self.keep_alive();
    }

    /// Ends the connection and keeps the leases for the stream's next connection.
    pub(crate) fn end_connection(&mut self) {
        self.connection.disconnected();
    }

    /// Passes the segment to the writers, even if not full.
    pub(crate) fn flush(&mut self) {
        self.connection.flush();
    }

    /// Fails if the round is stopped or the connection has stalled; to be called at every tick
    /// without data.
    pub(crate) fn check_alive(&mut self, shown: &str) -> Result<(), Failure> {
        self.connection.check_alive(shown)
    }

    /// Returns the bytes delivered by the connection so far.
    pub(crate) fn delivered_so_far(&self) -> Bytes {
        self.connection.delivery.total
    }

    /// Returns whether the output is a stream, from which bytes cannot be taken back.
    pub(crate) fn is_to_stdout(&self) -> bool {
        self.round.inlet.pipeline().part().is_stream()
    }

    /// Returns the stall timeout of a connection.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.round.options.stall
    }

    /// Returns whether the receive window was ever clamped. A clamped connection would be limited
    /// when reused for another file.
    pub(crate) fn holds_window(&self) -> bool {
        self.connection.holds_window()
    }

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
        ranges.iter().for_each(|range| self.progress().forget_delivered_in(range));
        self.requeue(ranges.iter());
        Ok(())
    }

    /// Forgets ranges once all delivered bytes are written.
    fn forget(&mut self, ranges: impl FnOnce(&Pipeline) -> RangeSet) -> Result<(), Failure> {
        self.flush();
        let pipeline = self.round.inlet.pipeline();
        if !pipeline.drain() {
            return Err(Failure::interrupted());
        }
        ranges(pipeline).iter().try_for_each(|range| pipeline.forget(range)).map_err(|error| {
            let message = error.to_string();
            self.round.end.fail(error.into());
            Failure::new(FailureKind::Disk, message).caused_by(Cause::Interrupted)
        })
    }
}

/// A stream with several connections, as MODE E of GridFTP has.
impl<'a> Stream<'a> {
    /// Returns how many bytes several connections together should have outstanding, so that the
    /// server never idles.
    pub(crate) fn outstanding_target_over(&self, expected: Rate, rtt: Rtt) -> Bytes {
        let wanted = buffer_plan::ask_ahead(expected, rtt, 1);
        self.round.schedule.with(|schedule, _| schedule.outstanding_target(self.id(), wanted))
    }

    /// Creates the intake of one of several connections, and returns it with its number; the first
    /// connection has the stream's number.
    pub(crate) fn new_intake(&self, number: Option<usize>) -> (Intake<'a>, usize) {
        let number = number.unwrap_or_else(|| self.round.transfer.take_numbers(1));
        (Intake::new(number, self.handle.source, self.round), number)
    }

    /// Starts measuring one of several connections.
    pub(crate) fn connected_over(&mut self, intake: &mut Intake<'_>, socket: &TcpStream, peer: SocketAddr) {
        let rtt = intake.connected(socket, peer);
        self.note_connected(rtt);
        self.answered();
    }

    /// Counts `arrived`, received from `socket` into the front of an intake's buffer; `rate` is the
    /// sum over the stream's connections. Returns how many leading bytes are kept; the rest was
    /// stolen meanwhile.
    pub(crate) fn delivered_over(
        &mut self,
        intake: &mut Intake<'_>,
        arrived: ByteRange,
        rate: Rate,
        socket: &TcpStream,
    ) -> Bytes {
        let own = self.mark_moved(arrived, rate);
        let full = intake.keep(own, socket);
        self.count(own);
        intake.flush_if(full || own < arrived.len());
        own
    }
}
