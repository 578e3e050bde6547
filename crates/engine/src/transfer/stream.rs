//! A stream of a transfer, as its source sees it: leases in, bytes out.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::plan;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::schedule::WorkerId;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::error::{Cause, Retry, SourceError};
use super::intake::Intake;
use super::state::{SourceProgress, TransferState};
use super::stream_handle::StreamHandle;
use crate::cancel::Cancel;
use crate::failure::FailureKind;
use crate::sink::pipeline::Inlet;

/// A draining stream still receives what arrives within this time, or two round trips.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// Beside other sources a chunk is no more than this part of what is left,
const PARTS_BESIDE_OTHERS: u64 = 8;
/// and no less than this.
const LEAST_CHUNK: Bytes = Bytes::mib(2);
/// The fractional parts of its multiples spread evenly over 0 to 1, however many there are (the golden ratio's inverse).
const GOLDEN: f64 = 0.618_034;

/// How streams treat stalls and windows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamOptions {
    /// How many failures in a row a stream may have.
    pub(crate) retries: u32,
    /// After how long without data a connection is taken for dead.
    pub(crate) stall: Duration,
    /// Whether to hold receive windows near the BDP.
    pub(crate) hold_window: bool,
}

/// One stream: leases ranges for its source's worker and takes the bytes that arrive.
pub(crate) struct Stream<'a> {
    handle: Arc<StreamHandle>,
    transfer: &'a TransferState<'a>,
    options: StreamOptions,
    has_connected: bool,
    /// What the stream's own connection receives.
    intake: Intake<'a>,
    /// What has arrived for good since it was last asked.
    gained: Bytes,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(
        handle: Arc<StreamHandle>,
        transfer: &'a TransferState<'a>,
        inlet: Option<Inlet<'a>>,
        options: StreamOptions,
    ) -> Self {
        transfer.schedule.with(|schedule, now| schedule.join(handle.id, now));
        let intake = Intake::new(handle.id, handle.source, transfer, inlet, options);
        Self { handle, transfer, options, has_connected: false, intake, gained: Bytes::ZERO }
    }

    /// Returns the stream's number, from 0.
    pub(crate) fn id(&self) -> WorkerId {
        self.handle.id
    }

    fn progress(&self) -> &'a SourceProgress {
        &self.transfer.sources[self.handle.source]
    }

    /// Returns how many streams the source should have now.
    pub(crate) fn wanted_streams(&self) -> usize {
        self.progress().wanted()
    }

    /// Returns the flag that ends the waits of the next connection: when the transfer stops, another stream has stolen all leases
    /// of this one, or this stream is no longer wanted.
    pub(crate) fn renew_cancel(&self) -> Cancel {
        self.handle.renew()
    }

    /// Returns whether the stream is to request nothing more.
    pub(crate) fn is_draining(&self) -> bool {
        self.handle.is_draining()
    }

    /// Returns whether the stream has nothing left to try: the transfer ends, every byte is there, or the stream drains.
    pub(crate) fn is_over(&self) -> bool {
        self.transfer.stop.is_cancelled() || self.transfer.schedule.is_done() || self.is_draining()
    }

    /// Waits until a range can be leased; `false` where the stream ends instead.
    pub(crate) fn wait_for_work(&self) -> bool {
        let over = || self.transfer.stop.is_cancelled() || self.is_draining();
        self.transfer.schedule.wait_for_work(self.id(), over, |victim| self.transfer.interrupt(victim))
    }

    /// Leases a range; `None` where none is left, or the stream drains.
    pub(crate) fn lease(&self) -> Option<ByteRange> {
        if self.is_draining() {
            return None;
        }
        self.transfer.schedule.with(|schedule, now| schedule.lease(self.id(), now))
    }

    /// Leases the range that was requested before the streams began.
    pub(crate) fn lease_requested(&self, range: ByteRange) {
        self.transfer.schedule.lease_requested(self.id(), range);
    }

    /// Returns what is still to come of the first lease; a draining stream releases what would take it long.
    pub(crate) fn front(&self) -> Option<ByteRange> {
        if self.is_draining() {
            let soon = DRAIN_TIME.max(self.intake.delivery.rtt.get() * 2);
            let keep = self.intake.delivery.rate.bytes_in(soon);
            self.transfer.schedule.change(|schedule| schedule.release_beyond(self.id(), keep));
        }
        self.transfer.schedule.front(self.id())
    }

    /// Returns how much is leased and not received, in how many leases.
    pub(crate) fn outstanding(&self) -> (Bytes, usize) {
        self.transfer.schedule.with(|schedule, _| schedule.outstanding(self.id()))
    }

    /// Returns how much may be leased now, by any stream.
    pub(crate) fn unleased(&self) -> Bytes {
        self.transfer.schedule.with(|schedule, _| schedule.available())
    }

    /// Returns whether nothing is left to lease for any stream, unless another fails or is slow.
    pub(crate) fn is_all_leased(&self) -> bool {
        self.transfer.schedule.with(|schedule, _| schedule.is_all_leased())
    }

    /// Returns how much should be outstanding so that the server never idles.
    ///
    /// The only stream of the only source requests everything at once from a `paced` server, which may start at a rate that it
    /// remembers.
    pub(crate) fn outstanding_target(&self, paced: bool) -> Bytes {
        let streams = self.wanted_streams();
        let wanted = if paced && streams == 1 && !self.transfer.has_other_source(self.handle.source) {
            Bytes::new(u64::MAX)
        } else {
            plan::ask_ahead(self.intake.delivery.expected, self.intake.delivery.data_rtt(), streams)
        };
        self.transfer.schedule.with(|schedule, _| schedule.outstanding_target(self.id(), wanted))
    }

    /// Ends the first lease at `end`: a server may send less than was requested (RFC 9110, section 15.3.7).
    pub(crate) fn shorten(&self, end: u64) {
        self.transfer.schedule.change(|schedule| schedule.shorten(self.id(), end));
    }

    /// Begins the first lease, all of the file, from its start again; returns how far it had come.
    pub(crate) fn restart(&self) -> Option<u64> {
        self.transfer.schedule.with(|schedule, _| schedule.restart(self.id()))
    }

    /// Drops the first lease, all of which has arrived; `false` where another stream has stolen it.
    pub(crate) fn complete(&self) -> bool {
        self.transfer.schedule.change(|schedule| schedule.complete(self.id()))
    }

    /// Begins to measure a new connection.
    pub(crate) fn connected(&mut self, socket: &TcpStream, peer: SocketAddr) {
        let rtt = self.intake.connected(socket, peer, self.wanted_streams());
        self.note_connected(rtt);
    }

    /// Notes that the stream has a connection of this RTT.
    pub(super) fn note_connected(&mut self, rtt: Rtt) {
        self.update_status(|status| {
            (status.connected, status.answered) = (true, false);
            (status.rate, status.rtt) = (Rate::default(), rtt);
        });
        self.has_connected = true;
    }

    /// Returns how long to wait between the stream's first connection and its first request.
    ///
    /// Several slow starts that begin at once send their bursts at once, and each takes the others' for a queue of its own:
    /// CUBIC's HyStart ends slow start at 16 ms of it. So they are spread over the round trip, evenly for any number.
    pub(crate) fn slow_start_offset(&self) -> Duration {
        match self.wanted_streams() {
            ..=1 => Duration::ZERO,
            _ => self.intake.delivery.rtt.get().mul_f64((self.id() as f64 * GOLDEN).fract()),
        }
    }

    /// Returns whether the stream has had a connection.
    pub(crate) fn has_connected(&self) -> bool {
        self.has_connected
    }

    /// Notes that the server has answered on the connection.
    pub(crate) fn answered(&self) {
        self.update_status(|status| status.answered = true);
    }

    fn update_status(&self, change: impl FnOnce(&mut longhaul_core::schedule::WorkerStatus)) {
        self.transfer.schedule.with(|schedule, _| schedule.update(self.id(), change));
    }

    /// Returns whether all of a range that ends at `end` is still leased to the stream.
    pub(crate) fn leases_until(&self, end: u64) -> bool {
        self.transfer.schedule.with(|schedule, _| schedule.leases_until(self.id(), end))
    }

    /// Accounts for a part of a lease that the peer's TCP has acknowledged on `socket`; returns how many of its leading bytes
    /// count: the rest was stolen meanwhile.
    pub(crate) fn acknowledged(&mut self, part: ByteRange, socket: &TcpStream) -> Bytes {
        self.intake.delivery.add(part.len(), Bytes::ZERO, socket, Instant::now());
        let rate = self.intake.delivery.rate;
        let counted = self.transfer.schedule.with(|schedule, now| {
            schedule.update(self.id(), |status| status.rate = rate);
            schedule.received(self.id(), part, now)
        });
        self.transfer.add_received(self.handle.source, counted.as_usize());
        counted
    }

    /// Accounts for a lease of `length` bytes that ends at `end` and that the server has confirmed; `false` where a part of it
    /// was stolen.
    pub(crate) fn confirmed(&mut self, end: u64, length: Bytes) -> bool {
        let rest = self.transfer.schedule.with(|schedule, now| schedule.confirm(self.id(), end, now));
        let Some(rest) = rest else { return false };
        self.transfer.add_received(self.handle.source, rest.as_usize());
        self.gained += length;
        // Waiting streams end with the last byte.
        self.transfer.schedule.change(|_| ());
        true
    }

    /// Makes acknowledged parts of leases available again: the server has not confirmed them.
    pub(crate) fn requeue(&self, parts: impl Iterator<Item = ByteRange>) {
        self.transfer.schedule.change(|schedule| parts.for_each(|part| schedule.requeue(part)));
    }

    /// Notes that the stream waits for the peer, which is alive.
    pub(crate) fn keep_alive(&self) {
        self.touch();
    }

    /// Ends the connection: what has arrived is written, what has not can be leased by any stream.
    pub(crate) fn disconnected(&mut self) {
        self.intake.disconnected();
        self.transfer.schedule.change(|schedule| {
            schedule.update(self.id(), |status| {
                (status.connected, status.answered, status.waiting) = (false, false, false);
                status.rate = Rate::default();
            });
            schedule.release(self.id());
        });
    }

    /// Ends the connection and keeps the leases: the next connection of the stream goes on with them.
    pub(crate) fn end_connection(&mut self) {
        self.intake.disconnected();
    }

    /// Returns the memory that the front of `range` is to be received into; waits for a segment where none is free.
    ///
    /// # Errors
    /// The transfer ends, or there is no memory.
    pub(crate) fn buffer(&mut self, range: ByteRange) -> Result<&mut [u8], SourceError> {
        // The other streams deliver about as much each.
        let streams = self.transfer.running() as u64;
        let rate = Rate::bits_per_sec(self.intake.rate().as_bits_per_sec().saturating_mul(streams));
        while self.intake.try_buffer(range, rate)?.is_none() {
            self.touch();
        }
        self.intake.try_buffer(range, rate)?.ok_or_else(SourceError::interrupted)
    }

    /// Accounts for `bytes` received from `socket` into the front of [`Self::buffer`]; returns whether a segment is complete.
    pub(crate) fn delivered(&mut self, bytes: usize, left: ByteRange, socket: &TcpStream) -> bool {
        self.keep_delivered(bytes, left, socket).1
    }

    /// Does the same, and returns first how many of the leading bytes are kept: the rest was stolen meanwhile.
    pub(crate) fn keep_delivered(
        &mut self,
        bytes: usize,
        left: ByteRange,
        socket: &TcpStream,
    ) -> (Bytes, bool) {
        let arrived = ByteRange::with_len(left.start(), Bytes::new(bytes as u64));
        let rate = self.intake.rate();
        let own = self.receive(arrived, rate).as_usize();
        let full = self.intake.keep(own);
        self.intake.measure(Bytes::new(own as u64), socket);
        self.count(own);
        let done = full || left.len().get() == own as u64 || own < bytes;
        if done {
            self.intake.flush();
        } else {
            self.intake.flush_if_slow();
        }
        (Bytes::new(own as u64), done)
    }

    /// Accounts for bytes of leases at this rate; returns how many of the leading ones are still leased.
    pub(super) fn receive(&self, arrived: ByteRange, rate: Rate) -> Bytes {
        self.transfer.schedule.with(|schedule, now| {
            schedule.update(self.id(), |status| status.rate = rate);
            schedule.received(self.id(), arrived, now)
        })
    }

    /// Counts bytes that have been kept; waits as long as `--limit` asks for.
    pub(super) fn count(&mut self, own: usize) {
        self.gained += Bytes::new(own as u64);
        self.transfer.add_received(self.handle.source, own);
        if self.transfer.is_limited() {
            self.touch();
        }
    }

    pub(super) fn touch(&self) {
        self.transfer.schedule.with(|schedule, now| schedule.touch(self.id(), now));
    }

    /// Hands the segment to the writers, however full it is.
    pub(crate) fn flush(&mut self) {
        self.intake.flush();
    }

    /// Fails once the transfer is stopped or the connection has stalled; to be called at every tick without data.
    pub(crate) fn check_alive(&mut self, shown: &str) -> Result<(), SourceError> {
        self.intake.check_alive(shown)
    }

    /// Takes what the connections have brought for good since the last call.
    pub(crate) fn take_delivered(&mut self) -> Bytes {
        std::mem::take(&mut self.gained)
    }

    /// Returns what the connection has delivered so far.
    pub(crate) fn delivered_so_far(&self) -> Bytes {
        self.intake.delivery.total
    }

    /// Returns whether delivered bytes have gone to a pipe, which takes none of them back.
    pub(crate) fn is_to_stdout(&self) -> bool {
        self.intake.inlet().is_some_and(|inlet| inlet.pipeline().part().is_stream())
    }

    /// Forgets all that was delivered, once it is written: bytes of an earlier answer must not stand beside those of a later
    /// one.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) fn forget_delivered(&mut self) -> Result<(), SourceError> {
        self.flush();
        let Some(pipeline) = self.intake.inlet().map(Inlet::pipeline) else { return Ok(()) };
        if !pipeline.drain() {
            return Err(SourceError::interrupted());
        }
        let written = pipeline.written_ranges();
        written.iter().try_for_each(|range| pipeline.forget(range)).map_err(|error| {
            let message = error.to_string();
            self.transfer.fail(error.into());
            SourceError::new(FailureKind::Disk, Retry::Never, Cause::Interrupted, message)
        })
    }

    /// Returns how much of several connections should be outstanding together, so that the server never idles.
    pub(crate) fn outstanding_target_over(&self, expected: Rate, rtt: Rtt) -> Bytes {
        let wanted = plan::ask_ahead(expected, rtt, 1);
        self.transfer.schedule.with(|schedule, _| schedule.outstanding_target(self.id(), wanted))
    }

    /// Leases a chunk of at most `most` bytes; `None` where none is left, or the stream drains.
    pub(crate) fn lease_chunk(&self, most: Bytes) -> Option<ByteRange> {
        if self.is_draining() {
            return None;
        }
        let shares = self.has_other_source();
        self.transfer.schedule.with(|schedule, now| {
            // Beside other sources chunks shrink towards the end, so that all finish at once.
            let part = Bytes::new(schedule.left().get() / PARTS_BESIDE_OTHERS).max(LEAST_CHUNK);
            schedule.lease_chunk(self.id(), if shares { most.min(part) } else { most }, now)
        })
    }

    /// Returns what is still to come from `offset` on of the lease that holds it.
    pub(crate) fn leased_at(&self, offset: u64) -> Option<ByteRange> {
        self.transfer.schedule.with(|schedule, _| schedule.leased_at(self.id(), offset))
    }

    /// Drops the leases that have arrived; returns whether any is left.
    pub(crate) fn drop_received(&self) -> bool {
        let left = self.transfer.schedule.with(|schedule, _| {
            schedule.drop_received(self.id());
            schedule.outstanding(self.id()).1 > 0
        });
        if !left {
            // What waits for the end of a chunk looks again.
            self.transfer.schedule.change(|_| ());
        }
        left
    }

    /// Makes the way to the disk of a connection of a stream that has several: the first has the stream's own number.
    /// Returns its number too.
    pub(crate) fn new_intake(&self, number: Option<usize>) -> (Intake<'a>, usize) {
        let number = number.unwrap_or_else(|| self.transfer.next_number());
        let inlet = self.intake.inlet().cloned();
        (Intake::new(number, self.handle.source, self.transfer, inlet, self.options), number)
    }

    /// Begins to measure one of several connections.
    pub(crate) fn connected_over(&mut self, intake: &mut Intake<'_>, socket: &TcpStream, peer: SocketAddr) {
        let rtt = intake.connected(socket, peer, self.wanted_streams());
        self.note_connected(rtt);
        self.answered();
    }

    /// Accounts for `arrived`, which was received from `socket` into the front of an intake's buffer; `rate` is that of all
    /// connections of the stream. Returns how many of its leading bytes are kept: the rest was stolen meanwhile.
    pub(crate) fn delivered_over(
        &mut self,
        intake: &mut Intake<'_>,
        arrived: ByteRange,
        rate: Rate,
        socket: &TcpStream,
    ) -> Bytes {
        let own = self.receive(arrived, rate);
        let full = intake.keep(own.as_usize());
        intake.measure(own, socket);
        self.count(own.as_usize());
        if full || own < arrived.len() {
            intake.flush();
        } else {
            intake.flush_if_slow();
        }
        own
    }

    /// Makes bytes available again that were delivered and may be of another state of the file.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) fn take_back(&mut self, ranges: &RangeSet) -> Result<(), SourceError> {
        self.flush();
        let Some(pipeline) = self.intake.inlet().map(Inlet::pipeline) else { return Ok(()) };
        if ranges.total() == Bytes::ZERO {
            return Ok(());
        }
        if !pipeline.drain() {
            return Err(SourceError::interrupted());
        }
        ranges.iter().try_for_each(|range| pipeline.forget(range)).map_err(|error| {
            let message = error.to_string();
            self.transfer.fail(error.into());
            SourceError::new(FailureKind::Disk, Retry::Never, Cause::Interrupted, message)
        })?;
        ranges.iter().for_each(|range| self.progress().forget_delivered_in(range));
        self.requeue(ranges.iter());
        Ok(())
    }

    /// Returns the flag that is raised once the transfer is stopped, and at no other time.
    pub(crate) fn stop(&self) -> &'a Cancel {
        &self.transfer.stop
    }

    /// Returns how long a connection may deliver next to nothing.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.options.stall
    }

    /// Returns whether another source delivers the file, or may.
    pub(crate) fn has_other_source(&self) -> bool {
        self.transfer.has_other_source(self.handle.source)
    }

    /// Returns whether every byte of the file is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.transfer.schedule.is_done()
    }

    /// Returns whether the connection's receive window was set: it would limit what another file gets over it.
    pub(crate) fn holds_window(&self) -> bool {
        self.intake.delivery.holds_window()
    }

    /// Leaves the transfer.
    pub(crate) fn leave(mut self) {
        self.disconnected();
        self.transfer.schedule.change(|schedule| schedule.leave(self.id()));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use longhaul_core::event::{JobId, JobObserver, JobTag};
    use longhaul_core::schedule::{Blocks, RangeScheduler};

    use super::*;
    use crate::transfer::SharedSchedule;

    #[test]
    fn acknowledged_bytes_that_were_stolen_are_not_counted() {
        const WHOLE: ByteRange = ByteRange::new(0, 100);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tag = JobTag::new(JobId::new(1), "http://h/f");
        let schedule = || RangeScheduler::new(Blocks::new(vec![WHOLE], 1, false, Bytes::new(1)));
        let (start, stop) = (Instant::now(), Cancel::new());
        let shared = SharedSchedule::new(start, schedule());
        let transfer = TransferState::new(start, JobObserver::new(&tag, &()), stop.clone(), shared, None, 1);
        transfer.schedule.plan(schedule());
        let options = StreamOptions { retries: 0, stall: Duration::from_secs(1), hold_window: false };
        let stream = |id| {
            let handle = Arc::new(StreamHandle::new(id, 0, &stop));
            Stream::new(handle, &transfer, None, options)
        };
        let (mut victim, thief) = (stream(0), stream(1));
        assert_eq!(victim.lease(), Some(WHOLE));
        transfer.schedule.change(|schedule| schedule.release_beyond(0, Bytes::new(60)));
        assert_eq!(victim.acknowledged(ByteRange::new(0, 40), &socket), Bytes::new(40));
        // What the peer has acknowledged of the stolen tail is the thief's to send.
        assert_eq!(victim.acknowledged(ByteRange::new(40, 90), &socket), Bytes::new(20));
        assert_eq!(transfer.received(), Bytes::new(60));
        assert!(!victim.leases_until(WHOLE.end()));
        victim.requeue(std::iter::once(ByteRange::new(0, 60)));
        victim.disconnected();
        assert_eq!(transfer.left(), WHOLE.len());
        let again: Vec<_> = std::iter::from_fn(|| thief.lease()).collect();
        assert_eq!(again, [ByteRange::new(0, 60), ByteRange::new(60, 100)]);
    }
}
