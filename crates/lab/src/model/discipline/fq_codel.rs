//! FQ-CoDel: one CoDel queue per flow, served round-robin (RFC 8290, section 4).

use std::collections::VecDeque;

use longhaul_core::units::Bytes;

use super::super::{Backlog, QueueLimit, Time};
use super::codel::{Codel, CodelParameters};
use super::{Discipline, PacketList, QueuedPacket};

/// Parameters of FQ-CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FqCodelParameters {
    /// CoDel's parameters, equal for all flows.
    pub codel: CodelParameters,
    /// Number of queues to which flows are hashed; 1024 (RFC 8290, 5.2.4).
    pub flows: u16,
}

impl Default for FqCodelParameters {
    fn default() -> Self {
        Self { codel: CodelParameters::default(), flows: 1024 }
    }
}

/// The queue of all flows with one hash value.
#[derive(Debug)]
struct FlowQueue {
    packets: PacketList,
    codel: Codel,
    /// Bytes left in this round; negative after overuse.
    credits: i64,
    /// Whether the queue is in the list of new or of old queues.
    is_listed: bool,
}

/// Queues of flows; new queues are served before old ones.
#[derive(Debug)]
pub struct FqCodelQueue {
    flows: Vec<FlowQueue>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    /// Bytes per round: the largest packet (RFC 8290, 5.2.3).
    quantum: i64,
    limit: QueueLimit,
    total: Backlog,
}

impl FqCodelQueue {
    /// Creates empty queues with a common `limit`; `max_packet` is the largest packet.
    pub fn new(parameters: FqCodelParameters, limit: QueueLimit, max_packet: Bytes) -> Self {
        let flow = || FlowQueue {
            packets: PacketList::default(),
            codel: Codel::new(parameters.codel, max_packet),
            credits: 0,
            is_listed: false,
        };
        Self {
            flows: (0..parameters.flows.max(1)).map(|_| flow()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum: i64::try_from(max_packet.get()).unwrap_or(i64::MAX).max(1),
            limit,
            total: Backlog::default(),
        }
    }

    fn forget(&mut self, packet: &QueuedPacket) {
        self.total.packets -= 1;
        self.total.bytes = self.total.bytes - packet.size;
    }

    /// Drops from the head of the longest queue: the flow that fills the queue is hit, and its
    /// receiver detects the gap one queueing delay earlier.
    fn drop_from_longest(&mut self, dropped: &mut Vec<QueuedPacket>) {
        let longest = self.flows.iter_mut().max_by_key(|flow| flow.packets.bytes);
        if let Some(packet) = longest.and_then(|flow| flow.packets.pop()) {
            self.forget(&packet);
            dropped.push(packet);
        }
    }
}

impl Discipline for FqCodelQueue {
    fn enqueue(&mut self, _: Time, packet: QueuedPacket, sending: Backlog, dropped: &mut Vec<QueuedPacket>) {
        let index = (packet.flow % self.flows.len() as u64) as usize;
        let flow = &mut self.flows[index];
        flow.packets.push(packet);
        self.total.packets += 1;
        self.total.bytes += packet.size;
        if !flow.is_listed {
            (flow.is_listed, flow.credits) = (true, self.quantum);
            self.new.push_back(index);
        }
        while self.total.packets > 0 && !self.limit.holds(self.total.and(sending), Bytes::ZERO) {
            self.drop_from_longest(dropped);
        }
    }

    fn dequeue(&mut self, now: Time, dropped: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.credits <= 0 {
                flow.credits += self.quantum;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = dropped.len();
            let packet = flow.codel.dequeue(now, &mut flow.packets, dropped);
            let gone: Vec<QueuedPacket> = dropped[before..].iter().copied().chain(packet).collect();
            match packet {
                Some(packet) => flow.credits -= packet.size.get() as i64,
                None => {
                    list.pop_front();
                    // An emptied new queue moves to the old list first; otherwise it could return
                    // as new at once (RFC 8290, 4.2).
                    flow.is_listed = is_new;
                    if is_new {
                        self.old.push_back(index);
                    }
                }
            }
            gone.iter().for_each(|packet| self.forget(packet));
            if packet.is_some() {
                return packet;
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.total
    }
}
