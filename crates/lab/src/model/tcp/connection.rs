//! The sender's state of one connection: data in flight, losses, and the next packet to send.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::congestion::Congestion;
use super::timer::Timer;
use super::{ReturningAck, Tcp};
use crate::model::Time;

/// A packet is lost where this many sent after it have arrived (DupThresh of RFC 6675).
const REORDERING: u64 = 3;

/// A sender with selective acknowledgements.
///
/// The path keeps the order of packets, so that losses show in the order of transmission, those of retransmissions included,
/// as in RACK (RFC 8985).
#[derive(Debug)]
pub(super) struct SimulatedConnection {
    state: ConnectionPhase,
    /// Whose packets it carries.
    pub(super) download: usize,
    /// When it stops to wait: for its opening, or for an acknowledgement.
    pub(super) deadline: Option<Time>,
    /// When it will next be looked whether the deadline has passed.
    pub(super) alarm: Option<Time>,
    congestion: Congestion,
    timer: Timer,
    /// What the receiver's socket buffer holds.
    most: u64,
    /// The first packet that has not arrived; the first never sent.
    first: u64,
    next: u64,
    /// Which have arrived, from `first` on.
    arrived: VecDeque<bool>,
    /// What has been sent and neither arrived nor been found lost, in order of transmission.
    flight: VecDeque<Transmission>,
    /// What is to be sent again.
    lost: BTreeSet<u64>,
    transmissions: u64,
    recovery: Option<RecoveryPoint>,
    last_sent: Time,
    /// Whether something has arrived since it was last asked.
    carried: bool,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Nothing can be sent yet.
    Opening,
    /// It carries what there is to carry.
    Open,
    /// It sees to it that what it has sent arrives, and takes no more.
    Closing,
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    number: u64,
    packet: u64,
}

/// The time from a loss until all that was in flight then has arrived: one loss, whatever else is found missing of it.
#[derive(Debug, Clone, Copy)]
struct RecoveryPoint {
    until: u64,
    /// Whether a timeout began it, after which the window grows anew.
    grows: bool,
}

/// What an acknowledgement told.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckOutcome {
    /// The packet had not arrived before.
    pub(super) is_new: bool,
    /// One before it is missing.
    pub(super) is_out_of_order: bool,
}

impl SimulatedConnection {
    /// Makes a connection for packets of `download` that can send from `opens` on, after a handshake that took `rtt`.
    pub(super) fn new(tcp: &Tcp, download: usize, opens: Time, rtt: Duration) -> Self {
        Self {
            state: ConnectionPhase::Opening,
            download,
            deadline: Some(opens),
            alarm: None,
            congestion: Congestion::new(tcp.algorithm, tcp.initial, tcp.window()),
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

    /// Returns what may be sent now, where there `is_more` than was ever sent.
    pub(super) fn may_send(&self, is_more: bool) -> Option<u64> {
        if self.state == ConnectionPhase::Opening || !self.congestion.allows(self.flight.len()) {
            return None;
        }
        let fresh =
            || (self.takes_more() && is_more && self.next - self.first < self.most).then_some(self.next);
        self.lost.first().copied().or_else(fresh)
    }

    /// Says whether it carries packets that were never sent before, now or when it is open.
    pub(super) fn takes_more(&self) -> bool {
        self.state != ConnectionPhase::Closing
    }

    /// Takes no more from now on.
    pub(super) fn closes(&mut self) {
        if self.state == ConnectionPhase::Opening {
            self.deadline = None;
        }
        self.state = ConnectionPhase::Closing;
    }

    /// Says whether something has arrived since this was last asked.
    pub(super) fn take_carried(&mut self) -> bool {
        std::mem::take(&mut self.carried)
    }

    /// Says whether something that it has sent has not arrived yet.
    fn waits(&self) -> bool {
        self.first < self.next
    }

    /// Says whether all that it has sent has arrived, and it takes no more.
    pub(super) fn is_over(&self) -> bool {
        self.state == ConnectionPhase::Closing && !self.waits()
    }

    /// Notes that `packet` is sent at `now`; returns the transmission's number, and whether it is the packet's first.
    pub(super) fn sends(&mut self, packet: u64, now: Time) -> (u64, bool) {
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

    /// Begins slow start anew where it has long sent nothing; to be called before it sends after a pause.
    pub(super) fn wakes(&mut self, now: Time) {
        if !self.waits() && now.since(self.last_sent) > self.timer.timeout() {
            self.congestion.paused();
        }
    }

    /// Takes an acknowledgement that is heard at `now`. `is_last`: nothing is left to be sent for the first time.
    pub(super) fn hears(&mut self, echo: &ReturningAck, now: Time, is_last: bool) -> AckOutcome {
        let in_flight = self.flight.len();
        let rtt = now.since(echo.sent);
        self.timer.acknowledged(rtt);
        // Where nothing will follow the last few that could tell of their loss, those in flight have to do (RFC 5827).
        let enough =
            if is_last { REORDERING.min(in_flight.saturating_sub(1) as u64).max(1) } else { REORDERING };
        let found_lost = self.find_lost(echo.transmission, enough);
        let is_it = |sent: &Transmission| sent.number == echo.transmission;
        if let Some(index) = self.flight.iter().take(REORDERING as usize).position(is_it) {
            self.flight.remove(index);
        } else {
            // A timeout took it for lost too early.
            self.lost.remove(&echo.packet);
        }
        let heard = self.arrives(echo.packet);
        if self.recovery.is_some_and(|recovery| self.first >= recovery.until) {
            self.recovery = None;
        }
        if found_lost && self.recovery.is_none() {
            self.congestion.lost();
            self.recovery = Some(RecoveryPoint { until: self.next, grows: false });
        } else if heard.is_new && self.recovery.is_none_or(|recovery| recovery.grows) {
            self.congestion.acknowledged(now, self.timer.rtt(), in_flight);
        }
        self.deadline = self.waits().then(|| now + self.timer.timeout());
        heard
    }

    /// Goes on at its deadline: it is open now, or takes all in flight for lost, as nothing was heard of it.
    pub(super) fn waited(&mut self, now: Time) {
        if self.state == ConnectionPhase::Opening {
            (self.state, self.deadline) = (ConnectionPhase::Open, None);
            return;
        }
        self.congestion.timed_out(self.flight.len(), self.timer.ran_out());
        self.lost.extend(self.flight.drain(..).map(|sent| sent.packet));
        self.recovery = Some(RecoveryPoint { until: self.next, grows: true });
        self.deadline = Some(now + self.timer.timeout());
    }

    /// Moves what was sent `reordering` transmissions before one that has arrived to what is lost; says whether there was any.
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

    fn arrives(&mut self, packet: u64) -> AckOutcome {
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
