//! CoDel: drops by sojourn time (RFC 8289). Variables are named as in RFC 8289, section 5.

use std::time::Duration;

use longhaul_core::units::Bytes;

use super::super::{Backlog, QueueLimit, Time};
use super::{Discipline, PacketList, QueuedPacket};

/// CoDel's target and interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodelParameters {
    /// Acceptable standing queue delay; 5 ms (RFC 8289, 4.4).
    pub target: Duration,
    /// Time for which the delay may exceed the target before the first drop: about one RTT; 100 ms
    /// (RFC 8289, 4.3).
    pub interval: Duration,
}

impl Default for CodelParameters {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// CoDel's state; the queue is separate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Codel {
    parameters: CodelParameters,
    /// A backlog up to this size is never dropped from.
    max_packet: Bytes,
    /// When the delay will have exceeded the target for an interval; `None` while it is below.
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    is_dropping: bool,
}

impl Codel {
    pub(super) fn new(parameters: CodelParameters, max_packet: Bytes) -> Self {
        Self {
            parameters,
            max_packet,
            first_above_time: None,
            drop_next: Time::START,
            count: 0,
            last_count: 0,
            is_dropping: false,
        }
    }

    /// Dequeues the next packet for the line (RFC 8289, 5.5); marks ECN-capable packets instead of
    /// dropping them.
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        queue: &mut PacketList,
        dropped: &mut Vec<QueuedPacket>,
    ) -> Option<QueuedPacket> {
        let (mut packet, mut may_drop) = self.pop(now, queue)?;
        if self.is_dropping {
            self.is_dropping = may_drop;
            while self.is_dropping && now >= self.drop_next {
                self.count += 1;
                if packet.is_ecn_capable {
                    packet.is_marked = true;
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                dropped.push(packet);
                let Some(next) = self.pop(now, queue) else {
                    self.is_dropping = false;
                    return None;
                };
                (packet, may_drop) = next;
                self.is_dropping = may_drop;
                if may_drop {
                    self.drop_next = self.control_law(self.drop_next);
                }
            }
        } else if may_drop {
            self.begin_dropping(now);
            if packet.is_ecn_capable {
                packet.is_marked = true;
            } else {
                dropped.push(packet);
                (packet, _) = self.pop(now, queue)?;
            }
        }
        Some(packet)
    }

    /// Enters the dropping state; resumes the last drop rate if that was recent.
    fn begin_dropping(&mut self, now: Time) {
        const NOT_LONG: u32 = 16;
        self.is_dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < self.parameters.interval * NOT_LONG;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
    }

    /// Pops a packet; also returns whether the delay has exceeded the target for an interval.
    fn pop(&mut self, now: Time, queue: &mut PacketList) -> Option<(QueuedPacket, bool)> {
        let Some(packet) = queue.pop() else {
            self.first_above_time = None;
            return None;
        };
        let is_good = now.since(packet.arrived) < self.parameters.target || queue.bytes <= self.max_packet;
        let may_drop = match self.first_above_time {
            _ if is_good => {
                self.first_above_time = None;
                false
            }
            None => {
                self.first_above_time = Some(now + self.parameters.interval);
                false
            }
            Some(time) => now >= time,
        };
        Some((packet, may_drop))
    }

    /// Returns the time of the next drop after one at `from`: intervals shrink with the square root
    /// of the drop count.
    fn control_law(&self, from: Time) -> Time {
        from + self.parameters.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

/// A single queue under CoDel with a limit.
#[derive(Debug)]
pub struct CodelQueue {
    codel: Codel,
    limit: QueueLimit,
    packets: PacketList,
}

impl CodelQueue {
    /// Creates an empty queue; `max_packet` is the largest packet.
    pub fn new(parameters: CodelParameters, limit: QueueLimit, max_packet: Bytes) -> Self {
        Self { codel: Codel::new(parameters, max_packet), limit, packets: PacketList::default() }
    }
}

impl Discipline for CodelQueue {
    fn enqueue(&mut self, _: Time, packet: QueuedPacket, sending: Backlog, dropped: &mut Vec<QueuedPacket>) {
        if self.limit.holds(self.backlog().and(sending), packet.size) {
            self.packets.push(packet);
        } else {
            dropped.push(packet);
        }
    }

    fn dequeue(&mut self, now: Time, dropped: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        self.codel.dequeue(now, &mut self.packets, dropped)
    }

    fn backlog(&self) -> Backlog {
        self.packets.backlog()
    }
}
