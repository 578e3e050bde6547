//! The sender's state of one connection: data in flight, losses, and the next packet.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::congestion::CongestionWindow;
use super::timer::Timer;
use super::{ReturningAck, Tcp};
use crate::model::Time;

/// A packet is lost once this many later ones have arrived (DupThresh of RFC 6675).
const REORDERING: u64 = 3;

/// A sender with selective acknowledgements.
///
/// The path keeps the order of packets, so losses are detected by the order of transmission, retransmissions included,
/// as in RACK (RFC 8985).
#[derive(Debug)]
pub(super) struct SimulatedConnection {
    state: ConnectionPhase,
    /// Index of the connection's download.
    pub(super) download: usize,
    /// End of the handshake, or retransmission timeout.
    pub(super) deadline: Option<Time>,
    /// Time of the queued timer event, which may precede the deadline.
    pub(super) alarm: Option<Time>,
    congestion: CongestionWindow,
    timer: Timer,
    /// The receiver's socket buffer in packets.
    most: u64,
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
    recovery: Option<RecoveryPoint>,
    last_sent: Time,
    /// Whether a packet has arrived since the last query.
    carried: bool,
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Handshake: nothing can be sent.
    Opening,
    /// Sends new packets.
    Open,
    /// Completes packets already sent, and sends no new ones.
    Closing,
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    number: u64,
    packet: u64,
}

/// End of a loss episode: losses before `until` belong to one reduction.
#[derive(Debug, Clone, Copy)]
struct RecoveryPoint {
    until: u64,
    /// Whether a timeout started the episode; the window then grows during it.
    grows: bool,
}

/// The result of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckOutcome {
    /// The packet is acknowledged for the first time.
    pub(super) is_new: bool,
    /// An earlier packet is missing.
    pub(super) is_out_of_order: bool,
}

impl SimulatedConnection {
    /// Creates a connection of `download` that can send from `opens` on, after a handshake of `rtt`.
    pub(super) fn new(tcp: &Tcp, download: usize, opens: Time, rtt: Duration) -> Self {
        Self {
            state: ConnectionPhase::Opening,
            download,
            deadline: Some(opens),
            alarm: None,
            congestion: CongestionWindow::new(tcp.algorithm, tcp.initial, tcp.window()),
            timer: Timer::new(rtt),
            most: tcp.window(),
            first: 0,
            next: 0,
            arrived: VecDeque::new(),
            flight: VecDeque::new(),
            lost: BTreeSet::new(),
            transmissions: 0,
            recovery: None,
            last_sent: opens,
            carried: false,
        }
    }

    /// Returns the next packet that may be sent; `is_more` says whether the download has unsent packets.
    pub(super) fn may_send(&self, is_more: bool) -> Option<u64> {
        if self.state == ConnectionPhase::Opening || !self.congestion.allows(self.flight.len()) {
            return None;
        }
        let fresh =
            || (self.takes_more() && is_more && self.next - self.first < self.most).then_some(self.next);
        self.lost.first().copied().or_else(fresh)
    }

    /// Returns whether the connection sends new packets, now or after its handshake.
    pub(super) fn takes_more(&self) -> bool {
        self.state != ConnectionPhase::Closing
    }

    /// Stops sending new packets.
    pub(super) fn close(&mut self) {
        if self.state == ConnectionPhase::Opening {
            self.deadline = None;
        }
        self.state = ConnectionPhase::Closing;
    }

    /// Returns whether a packet has arrived since the last call.
    pub(super) fn take_carried(&mut self) -> bool {
        std::mem::take(&mut self.carried)
    }

    /// Returns whether a sent packet is outstanding.
    fn has_outstanding(&self) -> bool {
        self.first < self.next
    }

    /// Returns whether the connection is closing and has nothing outstanding.
    pub(super) fn is_over(&self) -> bool {
        self.state == ConnectionPhase::Closing && !self.has_outstanding()
    }

    /// Records that `packet` is sent at `now`; returns the transmission's number, and whether it is the packet's first.
    pub(super) fn record_transmission(&mut self, packet: u64, now: Time) -> (u64, bool) {
        let is_first = packet == self.next;
        if is_first {
            self.next += 1;
            self.arrived.push_back(false);
        }
        self.lost.remove(&packet);
        let number = self.transmissions;
        self.transmissions += 1;
        self.flight.push_back(Transmission { number, packet });
        self.last_sent = now;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timer.timeout());
        }
        (number, is_first)
    }

    /// Restarts slow start after a long idle time; must be called before sending resumes.
    pub(super) fn resume_after_idle(&mut self, now: Time) {
        if !self.has_outstanding() && now.since(self.last_sent) > self.timer.timeout() {
            self.congestion.paused();
        }
    }

    /// Processes an acknowledgement at `now`. `is_last`: the download has no unsent packets.
    pub(super) fn process_ack(&mut self, echo: &ReturningAck, now: Time, is_last: bool) -> AckOutcome {
        let in_flight = self.flight.len();
        let rtt = now.since(echo.sent);
        self.timer.acknowledged(rtt);
        // Early retransmit (RFC 5827): without later packets, those in flight must suffice to detect a loss.
        let enough =
            if is_last { REORDERING.min(in_flight.saturating_sub(1) as u64).max(1) } else { REORDERING };
        let found_lost = self.find_lost(echo.transmission, enough);
        let is_it = |sent: &Transmission| sent.number == echo.transmission;
        if let Some(index) = self.flight.iter().take(REORDERING as usize).position(is_it) {
            self.flight.remove(index);
        } else {
            // A spurious timeout had marked the packet lost.
            self.lost.remove(&echo.packet);
        }
        let outcome = self.record_arrival(echo.packet);
        if self.recovery.is_some_and(|recovery| self.first >= recovery.until) {
            self.recovery = None;
        }
        if found_lost && self.recovery.is_none() {
            self.congestion.lost();
            self.recovery = Some(RecoveryPoint { until: self.next, grows: false });
        } else if outcome.is_new && self.recovery.is_none_or(|recovery| recovery.grows) {
            self.congestion.acknowledged(now, self.timer.rtt(), in_flight);
        }
        self.deadline = self.has_outstanding().then(|| now + self.timer.timeout());
        outcome
    }

    /// Handles the deadline: the handshake is complete, or all packets in flight are lost.
    pub(super) fn deadline_passed(&mut self, now: Time) {
        if self.state == ConnectionPhase::Opening {
            (self.state, self.deadline) = (ConnectionPhase::Open, None);
            return;
        }
        self.congestion.timed_out(self.flight.len(), self.timer.ran_out());
        self.lost.extend(self.flight.drain(..).map(|sent| sent.packet));
        self.recovery = Some(RecoveryPoint { until: self.next, grows: true });
        self.deadline = Some(now + self.timer.timeout());
    }

    /// Marks transmissions lost that precede an arrived one by `reordering`; returns whether there were any.
    fn find_lost(&mut self, arrived: u64, reordering: u64) -> bool {
        let mut found = false;
        while let Some(sent) = self.flight.front()
            && sent.number + reordering <= arrived
        {
            self.lost.insert(sent.packet);
            self.flight.pop_front();
            found = true;
        }
        found
    }

    fn record_arrival(&mut self, packet: u64) -> AckOutcome {
        let is_out_of_order = packet > self.first;
        let place = packet.checked_sub(self.first).and_then(|place| self.arrived.get_mut(place as usize));
        let is_new = place.is_some_and(|arrived| !std::mem::replace(arrived, true));
        while self.arrived.front() == Some(&true) {
            self.arrived.pop_front();
            self.first += 1;
        }
        self.carried |= is_new;
        AckOutcome { is_new, is_out_of_order: is_new && is_out_of_order }
    }
}
