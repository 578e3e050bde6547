//! The receive window's right edge, moved evenly: a receiver paces a sender that knows nothing of it.
//!
//! A sender sends what its congestion window and the receiver's allow. In slow start the first is the smaller, and each window
//! travels as one clump that doubles until a queue overflows. Here the second is made the smaller one while both are small:
//! from then on nothing leaves before the right edge (RFC 9293, section 3.8.6) lets it, and the edge moves at a rate.
//! So the clump is drawn out over the round trip, and the rate grows to just below the bottleneck's, which the first clumps
//! have told (`tune::train`). The sender's congestion window meanwhile grows to twice what is in flight and limits nothing.
//!
//! The edge is what has been read plus the socket's buffer: bytes that arrive and are not read take room, so that it moves
//! only as the buffer is set, never by what arrives.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::packet_train::{MAX_TRAIN_RATE, PacketTrain, PacketTrains};
use crate::units::{Bytes, Rate, Rtt};

/// What a receiver sees of its connection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverObservation {
    /// Bytes read from the socket.
    pub read: Bytes,
    /// Bytes that wait in it.
    pub unread: Bytes,
    /// The window in force: what may still come (`tcpi_rcv_wnd`).
    pub offered: Bytes,
    /// The RTT of the empty path.
    pub rtt: Rtt,
    /// The RTT as the data saw it (`tcpi_rcv_rtt`).
    pub data_rtt: Rtt,
    /// Segments that came out of order, since the connection's start.
    pub out_of_order: u64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowStep {
    /// Read as ever, and look again soon.
    Listen,
    /// The window is to end so far beyond what was read.
    Hold(Bytes),
    /// Leave the window to the kernel: this path is none for it.
    Off,
}

/// Moves the right edge of one connection's window.
#[derive(Debug, Clone)]
pub struct ReceiveWindowPacer {
    phase: Phase,
    limit: Option<Rate>,
}

#[derive(Debug, Clone)]
enum Phase {
    Listen(PacketTrains),
    Hold(Box<Edge>),
    Off,
}

#[derive(Debug, Clone)]
struct Edge {
    /// Where the window ends, from the start of what is read.
    at: Bytes,
    rate: Rate,
    capacity: Rate,
    looked: Duration,
    /// Until the next clump comes the edge stands still,
    still_until: Duration,
    /// and until it is drawn out the rate does not grow.
    even_from: Duration,
    /// From when on a queue makes it slower, and where there is none, faster, by this share.
    cut_from: Duration,
    step_from: Duration,
    step: f64,
    round: Round,
    /// Something was lost: until that which was under way then has come.
    recovery: Option<Recovery>,
    /// Whether anything ever was.
    lost: bool,
    /// Since when the sender has made no use of what the edge lets it.
    unused: Option<Duration>,
    /// The clumps that still come until the edge is drawn out.
    trains: PacketTrains,
}

#[derive(Debug, Clone, Copy)]
struct Recovery {
    since: Duration,
    /// The edge when the loss showed.
    upto: Bytes,
}

/// One round trip of a steady flow.
#[derive(Debug, Clone, Copy)]
struct Round {
    since: Duration,
    arrived: Bytes,
    out_of_order: u64,
}

/// On a shorter path the sender's own control is quick enough.
const SHORTEST: Duration = Duration::from_millis(20);
/// How much the rate grows in a round trip: as long as it is below half of the bottleneck's, and from there on.
const GROWTH: (f64, f64) = (1.6, 1.25);
/// And once something was lost.
const CAREFUL: f64 = 1.1;
const HALF: f64 = 0.5;
/// The rate over the bottleneck's that is held.
const ROOM: f64 = 0.95;
/// What the clumps told may be too little. So the rate grows in steps of this share above that while nothing speaks against it;
/// each is twice the one before, up to the second, once what the clumps told is refuted.
const STEP: (f64, f64) = (0.005, 0.6);
/// By so much more than what they told.
const REFUTED: f64 = 1.05;
/// Round trips until another rate shows,
const TAKES_EFFECT: u32 = 2;
/// and until a higher one is tried again.
const CALM: u32 = 16;
/// A queue of this length does.
const QUEUE: Duration = Duration::from_millis(3);
/// Round trips for which the rate is held until the clump is drawn out.
const DRAWN_OUT: f64 = 2.5;
/// The longest time for which the edge makes up, so that whoever was late sends no burst.
const LATE: Duration = Duration::from_millis(4);
/// How far the edge may be ahead of what arrives, over what the rate has in flight.
const AHEAD: f64 = 1.02;
/// Packets come in no smaller pieces.
const PIECE: Bytes = Bytes::kib(96);
/// What a queue leaves of it.
const HELD: f64 = 0.96;
/// From this share of the bottleneck's rate on, what stops the growth is the bottleneck.
const NEAR: f64 = 0.8;
/// What a loss leaves of the rate.
const CUT: f64 = 0.85;
/// A sender that needs more round trips than this to fill the gaps has a smaller window than ours.
const PATIENCE: u32 = 16;
/// So has one that for so many round trips, and so long at least, makes use of no more than this share of what it is let.
const UNUSED: (u32, Duration, f64) = (8, Duration::from_secs(2), 0.25);
/// So few segments out of order are an accident.
const FEW: u64 = 8;

impl ReceiveWindowPacer {
    /// Starts to listen; never faster than `limit`.
    pub fn new(limit: Option<Rate>) -> Self {
        Self { phase: Phase::Listen(PacketTrains::default()), limit }
    }

    /// Observes the connection at `now`, since any fixed moment, every few milliseconds and after each read.
    pub fn observe(&mut self, seen: &ReceiverObservation, now: Duration) -> WindowStep {
        if seen.rtt.get() < SHORTEST {
            self.phase = Phase::Off;
        }
        match &mut self.phase {
            Phase::Off => WindowStep::Off,
            Phase::Listen(trains) => {
                let Some(train) = trains.ended(seen.read + seen.unread, now) else {
                    return WindowStep::Listen;
                };
                if seen.out_of_order > FEW || train.is_measurable() && train.rate > MAX_TRAIN_RATE {
                    self.phase = Phase::Off;
                    return WindowStep::Off;
                }
                if !(train.is_measurable() && (train.proven || train.is_large())) {
                    return WindowStep::Listen;
                }
                let edge = Edge::new(train, std::mem::take(trains), seen, now);
                let window = edge.window(seen.read);
                self.phase = Phase::Hold(Box::new(edge));
                WindowStep::Hold(window)
            }
            Phase::Hold(edge) => {
                edge.advance(seen, now);
                edge.review(seen, now);
                edge.rate = self.limit.map_or(edge.rate, |limit| edge.rate.min(limit));
                if edge.is_beyond_recovery(seen, now)
                    || edge.is_unused(seen, now)
                    || edge.rate > MAX_TRAIN_RATE
                {
                    self.phase = Phase::Off;
                    return WindowStep::Off;
                }
                WindowStep::Hold(edge.window(seen.read))
            }
        }
    }
}

impl Edge {
    /// Begins after a clump that has told the bottleneck's rate: its acknowledgements have let out twice as much.
    fn new(train: PacketTrain, trains: PacketTrains, seen: &ReceiverObservation, now: Duration) -> Self {
        let rtt = seen.rtt.get();
        let round = Round { since: now, arrived: seen.read + seen.unread, out_of_order: seen.out_of_order };
        Self {
            at: seen.read + seen.unread + seen.offered,
            rate: Rate::over(train.size * 2, rtt),
            capacity: train.rate,
            looked: now,
            still_until: now + rtt - LATE * 2,
            even_from: now + rtt.mul_f64(DRAWN_OUT),
            cut_from: now + rtt.mul_f64(DRAWN_OUT),
            step_from: now,
            step: STEP.0,
            round,
            recovery: None,
            lost: false,
            unused: None,
            trains,
        }
    }

    fn window(&self, read: Bytes) -> Bytes {
        self.at - read
    }

    /// Moves the edge by what the rate lets out since the last look.
    fn advance(&mut self, seen: &ReceiverObservation, now: Duration) {
        let (time, rtt) = (now.saturating_sub(self.looked), seen.rtt.get());
        self.looked = now;
        if now < self.still_until {
            return;
        }
        let most = self.capacity.scaled(ROOM);
        if now >= self.even_from && self.rate < most && self.recovery.is_none() {
            let growth = match self.lost {
                true => CAREFUL,
                false if self.rate < self.capacity.scaled(HALF) => GROWTH.0,
                false => GROWTH.1,
            };
            self.rate = self.rate.scaled(growth.powf(time.as_secs_f64() / rtt.as_secs_f64())).min(most);
        }
        let before = self.at;
        self.at += self.rate.bytes_in(time.min(LATE));
        if now >= self.even_from {
            let ahead = seen.read + seen.unread + self.rate.scaled(AHEAD).bytes_in(rtt) + PIECE;
            // What was offered stays offered.
            self.at = self.at.min(ahead).max(before);
        }
    }

    /// Says whether the sender takes too long to fill the gaps that a loss has left.
    fn is_beyond_recovery(&self, seen: &ReceiverObservation, now: Duration) -> bool {
        self.recovery.is_some_and(|recovery| now.saturating_sub(recovery.since) > seen.rtt.get() * PATIENCE)
    }

    /// Says whether the sender has for long made little use of what it is let.
    fn is_unused(&self, seen: &ReceiverObservation, now: Duration) -> bool {
        let long = UNUSED.1.max(seen.rtt.get() * UNUSED.0);
        self.unused.is_some_and(|since| now.saturating_sub(since) >= long)
    }

    /// Looks for losses, and once a round trip at what the rate has come to.
    ///
    /// After a loss the sender's window is still the larger one, for it had grown to twice ours: the edge goes on to pace.
    fn review(&mut self, seen: &ReceiverObservation, now: Duration) {
        let (time, rtt) = (now.saturating_sub(self.round.since), seen.rtt.get());
        let arrived = seen.read + seen.unread;
        // A server that reads a cold disk sends a clump in pieces, and the first tells too little.
        if now < self.even_from
            && let Some(train) = self.trains.observe(arrived, now)
            && train.proven
        {
            self.capacity = self.capacity.max(train.rate);
        }
        match self.recovery {
            // What was sent before the sender heard of it is out of order too.
            Some(recovery) if arrived < recovery.upto => {}
            Some(_) => {
                self.recovery = None;
                self.even_from = now + rtt;
                self.round = Round { since: now, arrived, out_of_order: seen.out_of_order };
            }
            None if seen.out_of_order > self.round.out_of_order + FEW => {
                self.recovery = Some(Recovery { since: now, upto: self.at });
                self.lost = true;
                self.slow_down(CUT, rtt, now);
            }
            None if seen.data_rtt.get() > rtt + QUEUE && now >= self.cut_from => {
                self.slow_down(HELD, rtt, now);
            }
            None if time < rtt => {}
            None => {
                let goodput = Rate::over(arrived - self.round.arrived, time);
                // Who sends nothing pauses: what window it has does not show.
                let little = goodput > Rate::default() && goodput < self.rate.scaled(UNUSED.2);
                self.unused = little.then(|| self.unused.unwrap_or(self.round.since));
                let full = goodput > self.rate.scaled(ROOM) && self.rate >= self.capacity.scaled(ROOM);
                if full && now >= self.step_from {
                    self.step_up(rtt, now);
                }
                self.round = Round { since: now, arrived, out_of_order: seen.out_of_order };
            }
        }
    }

    fn step_up(&mut self, rtt: Duration, now: Duration) {
        self.rate = self.rate.scaled(1.0 + self.step);
        if self.rate > self.capacity.scaled(REFUTED) {
            self.step = (self.step * 2.0).min(STEP.1);
        }
        self.step_from = now + rtt * TAKES_EFFECT;
    }

    /// Leaves `share` of the rate; near the top that is the top from now on.
    fn slow_down(&mut self, share: f64, rtt: Duration, now: Duration) {
        let near = self.rate >= self.capacity.scaled(NEAR);
        self.rate = self.rate.scaled(share);
        if near {
            self.capacity = self.rate.scaled(1.0 / ROOM);
        }
        self.cut_from = now + rtt * TAKES_EFFECT;
        self.step_from = now + rtt * CALM;
        self.step = STEP.0;
    }
}
