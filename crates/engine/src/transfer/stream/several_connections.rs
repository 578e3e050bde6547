//! A stream that has several connections, as MODE E of GridFTP does.

use std::net::{SocketAddr, TcpStream};

use longhaul_core::plan;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::Stream;
use crate::transfer::intake::Intake;

impl<'a> Stream<'a> {
    /// Returns how much of several connections should be outstanding together, so that the server never idles.
    pub(crate) fn outstanding_target_over(&self, expected: Rate, rtt: Rtt) -> Bytes {
        let wanted = plan::ask_ahead(expected, rtt, 1);
        self.transfer.schedule.with(|schedule, _| schedule.outstanding_target(self.id(), wanted))
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
}
