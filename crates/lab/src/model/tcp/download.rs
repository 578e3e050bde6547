//! One client's download, in packets, each assigned to a connection when it is sent.

use std::time::Duration;

use super::connection::AckOutcome;

/// What is asked for and what has come.
#[derive(Debug, Default)]
pub(super) struct Download {
    /// Its connections, in the order in which they were opened.
    pub(super) connections: Vec<usize>,
    /// Asked for and never sent.
    left: u64,
    /// Asked for, and not arrived.
    missing: u64,
    counts: PacketCounts,
}

/// What a download has seen since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// Packets that have arrived, each once.
    pub arrived: u64,
    /// Those of them that arrived before one that was sent earlier on their connection.
    pub out_of_order: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// The sum of the round-trip times of those that have arrived.
    pub rtts: Duration,
    /// The shortest of them; none before the first.
    pub least_rtt: Option<Duration>,
}

impl Download {
    pub(super) fn counts(&self) -> PacketCounts {
        self.counts
    }

    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    pub(super) fn ask(&mut self, packets: u64) {
        self.left += packets;
        self.missing += packets;
    }

    /// Says whether there is a packet that was never sent.
    pub(super) fn is_more(&self) -> bool {
        self.left > 0
    }

    /// Counts a packet that is sent.
    pub(super) fn sends(&mut self, is_first: bool) {
        if is_first {
            self.left -= 1;
        } else {
            self.counts.retransmits += 1;
        }
    }

    /// Counts a packet that has arrived after `rtt`; says whether it is the last that was missing.
    pub(super) fn hears(&mut self, heard: AckOutcome, rtt: Duration) -> bool {
        if !heard.is_new {
            return false;
        }
        self.counts.arrived += 1;
        self.counts.out_of_order += u64::from(heard.is_out_of_order);
        self.counts.rtts += rtt;
        self.counts.least_rtt = Some(self.counts.least_rtt.map_or(rtt, |least| least.min(rtt)));
        self.missing -= 1;
        self.missing == 0
    }
}
