//! A stream of a transfer, as used by its source: leases ranges and delivers bytes.

mod leases;
mod several_connections;
mod taking_back;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;
use longhaul_core::ranges::ByteRange;
use longhaul_core::schedule::WorkerId;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::intake::Intake;
use super::state::{SourceProgress, TransferState};
use super::stream_handle::StreamHandle;
use crate::cancel::Cancel;
use crate::sink::pipeline::Inlet;

/// The inverse golden ratio: the fractional parts of its multiples spread evenly over 0 to 1, for
/// any number of them.
const GOLDEN: f64 = 0.618_034;

/// The settings for retries, stalls and windows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamOptions {
    /// The maximum number of consecutive failures of a stream.
    pub(crate) retries: u32,
    /// The stall timeout of a connection.
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
    /// The intake of the stream's own connection.
    intake: Intake<'a>,
    /// The bytes that have arrived for good since the last [`Self::take_delivered`].
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

    /// Returns the target number of streams of the source.
    pub(crate) fn wanted_streams(&self) -> usize {
        self.progress().wanted()
    }

    /// Creates the flag for the waits of the next connection. It is raised if the transfer stops,
    /// another stream steals all leases of this one, or this stream is to drain.
    pub(crate) fn renew_cancel(&self) -> Cancel {
        self.handle.renew()
    }

    /// Returns whether the stream drains, and so must not send further requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.handle.is_draining()
    }

    /// Returns whether the stream has no further work: the transfer ends, all bytes have arrived,
    /// or the stream drains.
    pub(crate) fn is_over(&self) -> bool {
        self.transfer.end.stop.is_cancelled() || self.transfer.schedule.is_done() || self.is_draining()
    }

    /// Starts measuring a new connection.
    pub(crate) fn connected(&mut self, socket: &TcpStream, peer: SocketAddr) {
        let rtt = self.intake.connected(socket, peer, self.wanted_streams());
        self.note_connected(rtt);
    }

    /// Records a connection with this RTT.
    pub(super) fn note_connected(&mut self, rtt: Rtt) {
        self.update_status(|status| {
            (status.connected, status.answered) = (true, false);
            (status.rate, status.rtt) = (Rate::default(), rtt);
        });
        self.has_connected = true;
    }

    /// Returns the delay between the stream's first connection and its first request.
    ///
    /// Simultaneous slow starts send their bursts together, and each takes the queue of the others
    /// for its own: CUBIC's HyStart ends slow start at 16 ms of queueing delay. The offsets spread
    /// the starts evenly over a round trip, for any number of streams.
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

    /// Records that the server has responded on the connection.
    pub(crate) fn answered(&self) {
        self.update_status(|status| status.answered = true);
    }

    fn update_status(&self, change: impl FnOnce(&mut longhaul_core::schedule::WorkerStatus)) {
        self.transfer.schedule.with(|schedule, _| schedule.update(self.id(), change));
    }

    /// Counts a part of a lease that the peer's TCP has acknowledged on `socket`; returns how many
    /// leading bytes count: the rest was stolen meanwhile.
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

    /// Completes a lease of `length` bytes that ends at `end` and that the server has confirmed;
    /// returns `false` if a part was stolen.
    pub(crate) fn confirmed(&mut self, end: u64, length: Bytes) -> bool {
        let rest = self.transfer.schedule.with(|schedule, now| schedule.confirm(self.id(), end, now));
        let Some(rest) = rest else { return false };
        self.transfer.add_received(self.handle.source, rest.as_usize());
        self.gained += length;
        // Waiting streams end with the last byte.
        self.transfer.schedule.change(|_| ());
        true
    }

    /// Records that the stream waits for a peer that is alive.
    pub(crate) fn keep_alive(&self) {
        self.touch();
    }

    /// Ends the connection; received bytes are written, and the other leases are released.
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

    /// Ends the connection and keeps the leases for the stream's next connection.
    pub(crate) fn end_connection(&mut self) {
        self.intake.disconnected();
    }

    /// Returns the memory to receive the front of `range` into; waits for a free segment.
    ///
    /// # Errors
    /// The transfer ends, or memory is exhausted.
    pub(crate) fn buffer(&mut self, range: ByteRange) -> Result<&mut [u8], Failure> {
        // Assumes that the other streams deliver at about the rate of this one.
        let streams = self.transfer.running.count() as u64;
        let rate = Rate::bits_per_sec(self.intake.rate().as_bits_per_sec().saturating_mul(streams));
        while self.intake.try_buffer(range, rate)?.is_none() {
            self.touch();
        }
        self.intake.try_buffer(range, rate)?.ok_or_else(Failure::interrupted)
    }

    /// Counts `bytes` received from `socket` into the memory of [`Self::buffer`]; returns whether
    /// the segment is full.
    pub(crate) fn delivered(&mut self, bytes: usize, left: ByteRange, socket: &TcpStream) -> bool {
        self.keep_delivered(bytes, left, socket).1
    }

    /// Counts `bytes` received from `socket` into the memory of [`Self::buffer`]; returns how many
    /// leading bytes are kept (the rest was stolen meanwhile), and whether the segment is full.
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

    /// Marks bytes of leases as received, at this rate; returns how many leading bytes are still
    /// leased.
    pub(super) fn receive(&self, arrived: ByteRange, rate: Rate) -> Bytes {
        self.transfer.schedule.with(|schedule, now| {
            schedule.update(self.id(), |status| status.rate = rate);
            schedule.received(self.id(), arrived, now)
        })
    }

    /// Counts kept bytes; waits as `--limit` requires.
    pub(super) fn count(&mut self, own: usize) {
        self.gained += Bytes::new(own as u64);
        self.transfer.add_received(self.handle.source, own);
        if self.transfer.is_limited() {
            self.touch();
        }
    }

    /// Counts bytes received from `socket` that are there already; they show that the connection is alive.
    pub(crate) fn discarded(&mut self, bytes: usize, socket: &TcpStream) {
        self.intake.measure(Bytes::new(bytes as u64), socket);
        self.transfer.wait_for_limit(bytes);
        self.touch();
    }

    pub(super) fn touch(&self) {
        self.transfer.schedule.with(|schedule, now| schedule.touch(self.id(), now));
    }

    /// Passes the segment to the writers, even if not full.
    pub(crate) fn flush(&mut self) {
        self.intake.flush();
    }

    /// Fails if the transfer is stopped or the connection has stalled; to be called at every tick
    /// without data.
    pub(crate) fn check_alive(&mut self, shown: &str) -> Result<(), Failure> {
        self.intake.check_alive(shown)
    }

    /// Takes the count of bytes that have arrived for good since the last call.
    pub(crate) fn take_delivered(&mut self) -> Bytes {
        std::mem::take(&mut self.gained)
    }

    /// Returns the bytes delivered by the connection so far.
    pub(crate) fn delivered_so_far(&self) -> Bytes {
        self.intake.delivery.total
    }

    /// Returns whether the output is a stream, from which bytes cannot be taken back.
    pub(crate) fn is_to_stdout(&self) -> bool {
        self.intake.inlet().is_some_and(|inlet| inlet.pipeline().part().is_stream())
    }

    /// Returns the flag that is raised only when the transfer is stopped.
    pub(crate) fn stop(&self) -> &'a Cancel {
        &self.transfer.end.stop
    }

    /// Returns the stall timeout of a connection.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.options.stall
    }

    /// Returns whether another source is usable or is being compared.
    pub(crate) fn has_other_source(&self) -> bool {
        self.transfer.has_other_source(self.handle.source)
    }

    /// Returns whether all bytes of the file have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.transfer.schedule.is_done()
    }

    /// Returns whether the receive window was ever clamped. A clamped connection would be limited
    /// when reused for another file.
    pub(crate) fn holds_window(&self) -> bool {
        self.intake.holds_window()
    }

    /// Removes the stream from the transfer.
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
        let shared = SharedSchedule::new(start, schedule(), None);
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
        // The thief sends the stolen tail, so acknowledged bytes of it do not count here.
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
