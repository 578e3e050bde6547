//! One connection of a stream, in either direction: its events, and the measurement of its
//! delivery.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use longhaul_core::event::Event;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_sys::tcp_info;

use super::direction::{Direction, Receiving};
use super::progress::SourceProgress;
use super::recv_buffer;
use super::round::Round;
use crate::delivery_meter::DeliveryMeter;

/// The connection of a stream, reported and measured from [`connected`](Self::connected) until
/// dropped.
pub(crate) struct StreamConnection<'a, D: Direction = Receiving> {
    /// The connection's number in events and samples.
    id: usize,
    /// The index of the connection's source.
    source: usize,
    pub(super) round: &'a Round<'a, D>,
    connected: bool,
    pub(super) delivery: DeliveryMeter,
    pub(super) held: D::Held<'a>,
}

impl<'a, D: Direction> StreamConnection<'a, D> {
    pub(super) fn new(id: usize, source: usize, round: &'a Round<'a, D>) -> Self {
        let delivery = DeliveryMeter::new(Rtt::default(), false, Instant::now());
        Self { id, source, round, connected: false, delivery, held: D::hold(&round.inlet) }
    }

    pub(super) fn progress(&self) -> &'a SourceProgress {
        &self.round.transfer.sources[self.source]
    }

    /// Starts measuring a new connection; returns its RTT.
    pub(super) fn connected(&mut self, socket: &TcpStream, peer: SocketAddr) -> Rtt {
        let rtt = tcp_info::read(socket).ok().and_then(|info| info.rtt());
        self.progress().sockets.add(self.id, socket);
        self.round.transfer.emit(&Event::Connected { stream: self.id, peer, rtt });
        let rtt = rtt.unwrap_or_default();
        // A buffer size set by the user is also the window.
        let holds_window = D::RECEIVES && self.round.options.client.recv_buffer.is_none();
        let delivery = DeliveryMeter::new(rtt, holds_window, Instant::now());
        self.delivery = match self.progress().wanted() {
            ..=1 => delivery,
            several => delivery.of_several(recv_buffer::share_in_flight(rtt, several)),
        };
        self.connected = true;
        rtt
    }

    /// Counts bytes received from `socket`.
    pub(super) fn measure(&mut self, bytes: Bytes, socket: &TcpStream) {
        let share = self.progress().window_share(self.delivery.rtt);
        self.delivery.add(bytes, share, socket, Instant::now());
        self.progress().note_window_clamp(self.delivery.window_clamp());
    }

    /// Ends the connection; what it holds is passed on.
    pub(super) fn disconnected(&mut self) {
        D::flush(self);
        if std::mem::take(&mut self.connected) {
            self.progress().sockets.remove(self.id);
            self.round.transfer.emit(&Event::Closed { stream: self.id });
        }
    }
}

impl<D: Direction> Drop for StreamConnection<'_, D> {
    fn drop(&mut self) {
        self.disconnected();
    }
}
