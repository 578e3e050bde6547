//! FIFO queues with DropTail or RED for held links; RED may mark.

use super::super::{AdmissionPolicy, Backlog, QueueVerdict, Time};
use super::{Discipline, PacketList, QueuedPacket};

/// A single queue in order of arrival.
#[derive(Debug)]
pub struct FifoQueue {
    admission: Box<dyn AdmissionPolicy>,
    packets: PacketList,
    /// Since when the queue and the line are idle; `None` while they are not.
    empty_since: Option<Time>,
}

impl FifoQueue {
    /// Creates an empty queue; an early drop marks ECN-capable packets instead (RFC 3168).
    pub fn new(admission: Box<dyn AdmissionPolicy>) -> Self {
        Self { admission, packets: PacketList::default(), empty_since: Some(Time::START) }
    }
}

impl Discipline for FifoQueue {
    fn enqueue(
        &mut self,
        now: Time,
        mut packet: QueuedPacket,
        sending: Backlog,
        dropped: &mut Vec<QueuedPacket>,
    ) {
        let mut backlog = self.packets.backlog().and(sending);
        if backlog.packets == 0 {
            backlog.idle = now.since(self.empty_since.unwrap_or(now));
        }
        match self.admission.judge(now, backlog, packet.size) {
            QueueVerdict::Full => return dropped.push(packet),
            QueueVerdict::Early if !packet.is_ecn_capable => return dropped.push(packet),
            QueueVerdict::Early => packet.is_marked = true,
            QueueVerdict::Admitted => {}
        }
        self.empty_since = None;
        self.packets.push(packet);
    }

    fn dequeue(&mut self, now: Time, _: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        let packet = self.packets.pop();
        if packet.is_none() {
            self.empty_since.get_or_insert(now);
        }
        packet
    }

    fn backlog(&self) -> Backlog {
        self.packets.backlog()
    }
}
