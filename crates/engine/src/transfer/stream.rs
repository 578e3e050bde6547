//! A stream of a round, as used by its worker: leases ranges, and moves their bytes over a
//! connection.

mod leasing;
mod receiving;
mod sending;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use longhaul_core::schedule::{ConnectionStatus, WorkerId};
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::connection::StreamConnection;
use super::direction::{Direction, Receiving};
use super::progress::SourceProgress;
use super::round::Round;
use super::running_streams::StreamHandle;
use crate::cancel::Cancel;

/// The inverse golden ratio: the fractional parts of its multiples spread evenly over 0 to 1, for
/// any number of them.
const GOLDEN: f64 = 0.618_034;

/// One stream: leases ranges for its worker, and counts the bytes that it moves.
pub(crate) struct Stream<'a, D: Direction = Receiving> {
    handle: Arc<StreamHandle>,
    round: &'a Round<'a, D>,
    has_connected: bool,
    /// The stream's own connection.
    connection: StreamConnection<'a, D>,
    /// The bytes that have arrived for good since the last [`Self::take_delivered`].
    gained: Bytes,
}

impl<'a, D: Direction> Stream<'a, D> {
    pub(crate) fn new(handle: Arc<StreamHandle>, round: &'a Round<'a, D>) -> Self {
        round.schedule.with(|schedule, now| schedule.join(handle.id, now));
        let connection = StreamConnection::new(handle.id, handle.source, round);
        Self { handle, round, has_connected: false, connection, gained: Bytes::ZERO }
    }

    /// Returns the stream's number, from 0.
    pub(crate) fn id(&self) -> WorkerId {
        self.handle.id
    }

    fn progress(&self) -> &'a SourceProgress {
        &self.round.transfer.sources[self.handle.source]
    }

    /// Returns the target number of streams of the source.
    pub(crate) fn wanted_streams(&self) -> usize {
        self.progress().wanted()
    }

    /// Creates the flag for the waits of the next connection. It is raised if the round stops,
    /// another stream steals all leases of this one, or this stream is to drain.
    pub(crate) fn renew_cancel(&self) -> Cancel {
        self.handle.renew()
    }

    /// Returns the flag that is raised only when the round is stopped.
    pub(crate) fn stop(&self) -> &'a Cancel {
        &self.round.end.stop
    }

    /// Returns whether the stream drains, and so must not send further requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.handle.is_draining()
    }

    /// Returns whether the stream has no further work: the round ends, all bytes have arrived,
    /// or the stream drains.
    pub(crate) fn is_over(&self) -> bool {
        self.stop().is_cancelled() || self.is_complete() || self.is_draining()
    }

    /// Returns whether all bytes of the file have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.round.schedule.is_done()
    }

    /// Returns whether another source is usable or is being compared.
    pub(crate) fn has_other_source(&self) -> bool {
        self.round.has_other_source(self.handle.source)
    }

    /// Starts measuring a new connection.
    pub(crate) fn connected(&mut self, socket: &TcpStream, peer: SocketAddr) {
        let rtt = self.connection.connected(socket, peer);
        self.note_connected(rtt);
    }

    /// Records a connection with this RTT.
    fn note_connected(&mut self, rtt: Rtt) {
        self.update_status(|status| {
            (status.connected, status.answered) = (true, false);
            (status.rate, status.rtt) = (Rate::default(), rtt);
        });
        self.has_connected = true;
    }

    /// Starts measuring a new connection; the first one of the stream then waits for its turn.
    pub(crate) fn connected_in_turn(&mut self, socket: &TcpStream, peer: SocketAddr, cancel: &Cancel) {
        let is_first = !self.has_connected;
        self.connected(socket, peer);
        if is_first {
            self.await_turn(cancel);
        }
    }

    /// Waits for the turn of a stream's first connection in a round trip.
    ///
    /// Simultaneous slow starts send their bursts together, and each takes the queue of the others
    /// for its own: CUBIC's HyStart ends slow start at 16 ms of queueing delay. The offsets spread
    /// the starts evenly over a round trip, for any number of streams.
    pub(crate) fn await_turn(&self, cancel: &Cancel) {
        if self.wanted_streams() > 1 {
            cancel.sleep(self.connection.delivery.rtt.get().mul_f64((self.id() as f64 * GOLDEN).fract()));
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

    fn update_status(&self, change: impl FnOnce(&mut ConnectionStatus)) {
        self.round.schedule.with(|schedule, _| schedule.update(self.id(), change));
    }

    /// Records that the stream waits for a peer that is alive.
    pub(crate) fn keep_alive(&self) {
        self.round.schedule.with(|schedule, now| schedule.touch(self.id(), now));
    }

    /// Ends the connection; received bytes are written, and the other leases are released.
    pub(crate) fn disconnected(&mut self) {
        self.connection.disconnected();
        self.round.schedule.change(|schedule| {
            schedule.update(self.id(), |status| {
                (status.connected, status.answered, status.waiting) = (false, false, false);
                status.rate = Rate::default();
            });
            schedule.release(self.id());
        });
    }

    /// Takes the count of bytes that have arrived for good since the last call.
    pub(crate) fn take_delivered(&mut self) -> Bytes {
        std::mem::take(&mut self.gained)
    }

    /// Removes the stream from the round.
    pub(crate) fn leave(mut self) {
        self.disconnected();
        self.round.schedule.change(|schedule| schedule.leave(self.id()));
    }
}
