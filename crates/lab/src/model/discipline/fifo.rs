//! FIFO queues with DropTail or RED for held links; RED may mark.

use super::super::{Backlog, QueueLimit, Red, Time, Verdict};
use super::{Discipline, PacketList, QueuedPacket};

/// The admission policy of a FIFO queue.
#[derive(Debug)]
enum Policy {
    DropTail(QueueLimit),
    Red(Box<Red>),
}

/// A single queue in order of arrival.
#[derive(Debug)]
pub struct FifoQueue {
    policy: Policy,
    packets: PacketList,
    /// Since when the queue and the line are idle; `None` while they are not.
    empty_since: Option<Time>,
}

impl FifoQueue {
    /// Creates a queue that drops packets beyond its limit.
    pub fn drop_tail(limit: QueueLimit) -> Self {
        Self {
            policy: Policy::DropTail(limit),
            packets: PacketList::default(),
            empty_since: Some(Time::START),
        }
    }

    /// Creates a queue under RED; an early drop marks ECN-capable packets instead (RFC 3168).
    pub fn red(red: Red) -> Self {
        Self {
            policy: Policy::Red(Box::new(red)),
            packets: PacketList::default(),
            empty_since: Some(Time::START),
        }
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
        let verdict = match &mut self.policy {
            Policy::DropTail(limit) if limit.holds(backlog, packet.size) => Verdict::Admitted,
            Policy::DropTail(_) => Verdict::Full,
            Policy::Red(red) => red.judge(now, backlog, packet.size),
        };
        match verdict {
            Verdict::Full => return dropped.push(packet),
            Verdict::Early if !packet.is_ecn_capable => return dropped.push(packet),
            Verdict::Early => packet.is_marked = true,
            Verdict::Admitted => {}
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
