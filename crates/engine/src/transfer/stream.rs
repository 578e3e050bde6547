//! A stream of a transfer, as its source sees it: leases in, bytes out.

mod leases;
mod several_connections;
mod taking_back;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::ranges::ByteRange;
use longhaul_core::schedule::WorkerId;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::error::SourceError;
use super::intake::Intake;
use super::state::{SourceProgress, TransferState};
use super::stream_handle::StreamHandle;
use crate::cancel::Cancel;
use crate::sink::pipeline::Inlet;

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
