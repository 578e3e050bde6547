//! Queue disciplines that decide when a packet leaves the queue as well as when it joins: CoDel, FQ-CoDel, and FIFO queues with ECN.

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

/// A packet as a queue sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedPacket {
    /// Its number, unique among the packets of the link.
    pub id: u64,
    /// Its size at the IP layer.
    pub size: Bytes,
    /// A hash of its flow.
    pub flow: u64,
    /// Whether its sender understands marks (ECT, RFC 3168), so that it is marked where others are dropped.
    pub takes_marks: bool,
    /// Whether it carries the mark of congestion (CE).
    pub is_marked: bool,
    /// When it joined the queue.
    pub arrived: Time,
    /// When it came to the link.
    pub came: Time,
    /// Which pair of hosts it belongs to.
    pub pair: u16,
}

/// A queue with a policy.
pub trait Discipline: fmt::Debug + Send {
    /// Takes a packet that arrives at `now`; what is dropped for it, itself perhaps, goes to `dropped`.
    ///
    /// `sending` is the packet that the line is sending, which counts as queued for the limit.
    fn enqueue(&mut self, now: Time, packet: QueuedPacket, sending: Backlog, dropped: &mut Vec<QueuedPacket>);

    /// Returns the next packet for the line at `now`; those that are dropped on the way go to `dropped`.
    fn dequeue(&mut self, now: Time, dropped: &mut Vec<QueuedPacket>) -> Option<QueuedPacket>;

    /// Returns what waits, the packet being sent not included.
    fn backlog(&self) -> Backlog;
}

/// Packets in order of arrival, with their bytes.
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

    fn bytes(&self) -> Bytes {
        self.bytes
    }

    fn backlog(&self) -> Backlog {
        Backlog { bytes: self.bytes, packets: self.packets.len() as u64, ..Backlog::default() }
    }
}
