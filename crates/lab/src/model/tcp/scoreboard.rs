//! Which packets of a connection have arrived, are in flight, or are lost.

use std::collections::{BTreeSet, VecDeque};

use super::Tcp;

/// A packet is lost once this many later segments have arrived (DupThresh of RFC 6675).
const REORDERING: u64 = 3;

/// A sender's scoreboard, with selective acknowledgements.
///
/// The path keeps the order of packets, so losses are detected by the order of transmission,
/// retransmissions included, as in RACK (RFC 8985).
#[derive(Debug)]
pub(super) struct Scoreboard {
    /// The receiver's socket buffer in packets.
    most: u64,
    /// Later packets that show a loss.
    reordering: u64,
    /// The first packet not received yet, and the first never sent.
    first: u64,
    next: u64,
    /// Which packets from `first` on have arrived.
    arrived: VecDeque<bool>,
    /// Transmissions in flight, in order.
    flight: VecDeque<Transmission>,
    /// Packets to be retransmitted.
    lost: BTreeSet<u64>,
    transmissions: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Transmission {
    pub(super) number: u64,
    packet: u64,
}

/// End of a loss episode, in which losses belong to one reduction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecoveryPoint {
    /// The first packet that was not sent when the episode began, and the first transmission after
    /// it.
    pub(super) packet: u64,
    pub(super) transmission: u64,
    /// Whether a timeout started the episode; the window then grows during it.
    pub(super) grows: bool,
}

/// The result of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckOutcome {
    /// The packet is acknowledged for the first time.
    pub(super) is_new: bool,
    /// An earlier packet is missing.
    pub(super) is_out_of_order: bool,
    /// Number of other packets that the acknowledgement shows to be lost.
    pub(super) lost: u64,
    /// Number of the last transmission of these.
    pub(super) newest_lost: Option<u64>,
}

impl Scoreboard {
    pub(super) fn new(tcp: &Tcp) -> Self {
        Self {
            most: tcp.window().div_ceil(tcp.segments),
            reordering: REORDERING.div_ceil(tcp.segments),
            first: 0,
            next: 0,
            arrived: VecDeque::new(),
            flight: VecDeque::new(),
            lost: BTreeSet::new(),
            transmissions: 0,
        }
    }

    /// Returns the number of packets in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.flight.len() as u64
    }

    /// Returns whether a sent packet is outstanding.
    pub(super) fn has_outstanding(&self) -> bool {
        self.first < self.next
    }

    /// Returns the point at which an episode of losses ends that begins now.
    pub(super) fn recovery_point(&self, grows: bool) -> RecoveryPoint {
        RecoveryPoint { packet: self.next, transmission: self.transmissions, grows }
    }

    /// Returns whether all packets before `packet` have arrived.
    pub(super) fn is_complete_to(&self, packet: u64) -> bool {
        self.first >= packet
    }

    /// Returns the next packet to send: a lost one, or one never sent if `is_more`.
    pub(super) fn sendable(&self, is_more: bool) -> Option<u64> {
        let fresh = || (is_more && self.next - self.first < self.most).then_some(self.next);
        self.lost.first().copied().or_else(fresh)
    }

    /// Records a transmission; returns it, and whether it is the packet's first.
    pub(super) fn sent(&mut self, packet: u64) -> (Transmission, bool) {
        let is_first = packet == self.next;
        if is_first {
            self.next += 1;
            self.arrived.push_back(false);
        }
        self.lost.remove(&packet);
        let transmission = Transmission { number: self.transmissions, packet };
        self.transmissions += 1;
        self.flight.push_back(transmission);
        (transmission, is_first)
    }

    /// Records the arrival of a transmission. `is_last`: there are no unsent packets.
    pub(super) fn acknowledged(&mut self, it: Transmission, is_last: bool) -> AckOutcome {
        // Early retransmit (RFC 5827): without later packets, those in flight must suffice to
        // detect a loss.
        let fewer = self.in_flight().saturating_sub(1).max(1);
        let enough = if is_last { self.reordering.min(fewer) } else { self.reordering };
        let (mut lost, mut newest_lost) = (0, None);
        while let Some(sent) = self.flight.front()
            && sent.number + enough <= it.number
        {
            self.lost.insert(sent.packet);
            newest_lost = Some(sent.number);
            self.flight.pop_front();
            lost += 1;
        }
        let is_it = |sent: &Transmission| sent.number == it.number;
        if let Some(index) = self.flight.iter().take(REORDERING as usize).position(is_it) {
            self.flight.remove(index);
        } else {
            // A spurious timeout had marked the packet lost.
            self.lost.remove(&it.packet);
        }
        let is_out_of_order = it.packet > self.first;
        let place = it.packet.checked_sub(self.first).and_then(|place| self.arrived.get_mut(place as usize));
        let is_new = place.is_some_and(|arrived| !std::mem::replace(arrived, true));
        while self.arrived.front() == Some(&true) {
            self.arrived.pop_front();
            self.first += 1;
        }
        AckOutcome { is_new, is_out_of_order: is_new && is_out_of_order, lost, newest_lost }
    }

    /// Marks all packets in flight lost.
    pub(super) fn lose_flight(&mut self) {
        self.lost.extend(self.flight.drain(..).map(|sent| sent.packet));
    }
}
