//! One client's download in packets, which are assigned to a connection when sent.

use std::ops::Sub;
use std::time::Duration;

use super::scoreboard::AckOutcome;

/// The requested and the received packets of a client.
#[derive(Debug, Default)]
pub(super) struct Download {
    /// Indices of its connections, in the order of their creation.
    pub(super) connections: Vec<usize>,
    /// Packets requested and never sent.
    pub(super) left: u64,
    /// Packets requested and not received.
    pub(super) missing: u64,
    pub(super) counts: PacketCounts,
}

/// Counts of a download since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// Packets put on the link, retransmissions included.
    pub sent: u64,
    /// Packets received, without duplicates.
    pub arrived: u64,
    /// Packets received before one that was sent earlier on their connection.
    pub out_of_order: u64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Packets lost: retransmitted, or waiting for it.
    pub lost: u64,
    /// Sum of the RTTs of the received packets.
    pub rtts: Duration,
    /// Minimum of these RTTs; `None` before the first packet.
    pub least_rtt: Option<Duration>,
}

impl Sub for PacketCounts {
    type Output = Self;

    /// Returns the counts since `before`; the minimum RTT remains that since the start.
    fn sub(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            arrived: self.arrived - before.arrived,
            out_of_order: self.out_of_order - before.out_of_order,
            retransmits: self.retransmits - before.retransmits,
            lost: self.lost - before.lost,
            rtts: self.rtts - before.rtts,
            least_rtt: self.least_rtt,
        }
    }
}

impl Download {
    pub(super) fn request(&mut self, packets: u64) {
        self.left += packets;
        self.missing += packets;
    }

    /// Counts a transmission.
    pub(super) fn record_transmission(&mut self, is_first: bool) {
        self.counts.sent += 1;
        if is_first {
            self.left -= 1;
        } else {
            self.counts.retransmits += 1;
        }
    }

    /// Counts a packet received after `rtt`; returns whether it was the last missing one.
    pub(super) fn record_ack(&mut self, outcome: AckOutcome, rtt: Duration) -> bool {
        self.counts.lost += outcome.lost;
        if !outcome.is_new {
            return false;
        }
        self.counts.arrived += 1;
        self.counts.out_of_order += u64::from(outcome.is_out_of_order);
        self.counts.rtts += rtt;
        self.counts.least_rtt = Some(self.counts.least_rtt.map_or(rtt, |least| least.min(rtt)));
        self.missing -= 1;
        self.missing == 0
    }
}
