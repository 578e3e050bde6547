//! Queue disciplines that act on departure as well as on arrival: CoDel, FQ-CoDel, and FIFO queues
//! with ECN.

mod codel;
mod fifo;
mod fq_codel;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use longhaul_core::units::Bytes;

use super::{Backlog, Time};

pub use codel::{CodelParameters, CodelQueue};
pub use fifo::FifoQueue;
pub use fq_codel::{FqCodelParameters, FqCodelQueue};

/// A packet in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueuedPacket {
    /// Id chosen by the caller of the link; below `u64::MAX`.
    pub id: u64,
    /// Size at the IP layer.
    pub size: Bytes,
    /// Hash of the flow.
    pub flow: u64,
    /// Whether the packet is ECN-capable (ECT, RFC 3168): marked instead of dropped.
    pub is_ecn_capable: bool,
    /// Whether the packet carries a congestion mark (CE).
    pub is_marked: bool,
    /// Arrival at this queue; set by the link.
    pub arrived: Time,
    /// Arrival at the link; set by the link.
    pub entered: Time,
    /// The pair of hosts of the packet.
    pub pair: u16,
}

/// A queue discipline.
pub trait Discipline: fmt::Debug + Send {
    /// Enqueues a packet that arrives at `now`; appends dropped packets, possibly `packet` itself,
    /// to `dropped`.
    ///
    /// `sending` is the packet in transmission, which counts towards the limit.
    fn enqueue(&mut self, now: Time, packet: QueuedPacket, sending: Backlog, dropped: &mut Vec<QueuedPacket>);

    /// Dequeues the next packet for the line at `now`; appends dropped packets to `dropped`.
    fn dequeue(&mut self, now: Time, dropped: &mut Vec<QueuedPacket>) -> Option<QueuedPacket>;

    /// Returns the backlog without the packet in transmission.
    fn backlog(&self) -> Backlog;
}

/// Packets in order of arrival, and their total bytes.
#[derive(Debug, Default)]
pub(super) struct PacketList {
    packets: VecDeque<QueuedPacket>,
    bytes: Bytes,
}

impl PacketList {
    fn push(&mut self, packet: QueuedPacket) {
        self.bytes += packet.size;
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<QueuedPacket> {
        let packet = self.packets.pop_front()?;
        self.bytes = self.bytes - packet.size;
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        Backlog { bytes: self.bytes, packets: self.packets.len() as u64, ..Backlog::default() }
    }
}
