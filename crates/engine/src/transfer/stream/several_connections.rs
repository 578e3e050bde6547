//! A stream that has several connections, as MODE E of GridFTP does.

use std::net::{SocketAddr, TcpStream};

use longhaul_core::plan;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::Stream;
use crate::transfer::intake::Intake;

impl<'a> Stream<'a> {
    /// Returns how many bytes several connections together should have outstanding, so that the
    /// server never idles.
    pub(crate) fn outstanding_target_over(&self, expected: Rate, rtt: Rtt) -> Bytes {
        let wanted = plan::ask_ahead(expected, rtt, 1);
        self.transfer.schedule.with(|schedule, _| schedule.outstanding_target(self.id(), wanted))
    }

    /// Creates the intake of one of several connections, and returns it with its number; the first
    /// connection has the stream's number.
    pub(crate) fn new_intake(&self, number: Option<usize>) -> (Intake<'a>, usize) {
        let number = number.unwrap_or_else(|| self.transfer.running.next_number());
        let inlet = self.intake.inlet().cloned();
        (Intake::new(number, self.handle.source, self.transfer, inlet, self.options), number)
    }

    /// Starts measuring one of several connections.
    pub(crate) fn connected_over(&mut self, intake: &mut Intake<'_>, socket: &TcpStream, peer: SocketAddr) {
        let rtt = intake.connected(socket, peer, self.wanted_streams());
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
}
