//! Paces a remote sender by the receive window: the window's right edge advances at a rate.
//!
//! A sender is limited by its congestion window and by the receive window. In slow start the congestion window is the
//! smaller one, and each window travels as one burst that doubles until a queue overflows. This controller makes the receive window
//! the smaller one while both are small: no byte is sent before the right edge (RFC 9293, section 3.8.6) permits it, and
//! the edge advances at a rate. So the burst is spread over the RTT, and the rate grows to just below the bottleneck's, which the
//! first bursts have shown (`tune::packet_train`). The sender's congestion window grows to twice the data in flight and limits nothing.
//!
//! The edge is the bytes read plus the socket's buffer: unread bytes occupy the buffer, so that only a change of the
//! buffer's size moves the edge, not the arrival of data.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::packet_train::{MAX_TRAIN_RATE, PacketTrain, PacketTrains};
use crate::units::{Bytes, Rate, Rtt};

/// A receiving connection's state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverObservation {
    /// Bytes read from the socket.
    pub read: Bytes,
    /// Bytes in the socket, not yet read.
    pub unread: Bytes,
    /// The announced receive window (`tcpi_rcv_wnd`).
    pub offered: Bytes,
    /// The RTT of the path without a queue.
    pub rtt: Rtt,
    /// The RTT of the data (`tcpi_rcv_rtt`).
    pub data_rtt: Rtt,
    /// Segments received out of order so far.
    pub out_of_order: u64,
}

/// What to do with the receive window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowStep {
    /// Leave it unchanged, and observe again soon.
    Listen,
    /// Set it to this size, beyond the bytes read.
    Hold(Bytes),
    /// Return it to the kernel for good: this path cannot be paced.
    Off,
}

/// Advances the right edge of one connection's receive window.
#[derive(Debug, Clone)]
pub struct ReceiveWindowPacer {
    phase: WindowPacerPhase,
    limit: Option<Rate>,
}

#[derive(Debug, Clone)]
enum WindowPacerPhase {
    Listen(PacketTrains),
    Hold(Box<WindowEdge>),
    Off,
}

#[derive(Debug, Clone)]
struct WindowEdge {
    /// The position of the edge, from the first byte of the stream.
    at: Bytes,
    rate: Rate,
    capacity: Rate,
    observed: Duration,
    /// The edge does not move until the next burst arrives.
    still_until: Duration,
    /// The rate does not grow until the burst is spread over the RTT.
    spread_from: Duration,
    /// From when on a queue lowers the rate.
    cut_from: Duration,
    /// From when on the rate rises by `step` where there is no queue.
    step_from: Duration,
    step: f64,
    round: RoundTrip,
    /// Set after a loss until the data in flight at that time has arrived.
    recovery: Option<LossRecovery>,
    /// Whether a packet was ever lost.
    lost: bool,
    /// Since when the sender has not used the window.
    unused: Option<Duration>,
    /// Finds further bursts until the burst is spread.
    trains: PacketTrains,
}

#[derive(Debug, Clone, Copy)]
struct LossRecovery {
    since: Duration,
    /// The edge when the loss was noticed.
    upto: Bytes,
}

/// The start of the current RTT.
#[derive(Debug, Clone, Copy)]
struct RoundTrip {
    since: Duration,
    arrived: Bytes,
    out_of_order: u64,
}

/// Shorter paths are not paced: the sender's own congestion control reacts soon enough.
const MIN_RECEIVER_PACED_RTT: Duration = Duration::from_millis(20);
/// The growth of the rate per RTT: below half of the bottleneck's rate, and above.
const GROWTH_PER_RTT: (f64, f64) = (1.6, 1.25);
/// The growth of the rate per RTT after a loss.
const GROWTH_AFTER_LOSS: f64 = 1.1;
/// The share of the bottleneck's rate up to which the rate grows by the first factor of [`GROWTH_PER_RTT`].
const FAST_GROWTH_UNTIL: f64 = 0.5;
/// The steady rate over the bottleneck's.
const CAPACITY_SHARE: f64 = 0.95;
/// The bursts may have shown too low a rate. So the rate rises in steps of the first share as long as there is neither a
/// queue nor a loss; once the bursts' rate is refuted, each step doubles, up to the second share.
const STEP_RANGE: (f64, f64) = (0.005, 0.6);
/// The bursts' rate is refuted once the rate exceeds it by this factor.
const CAPACITY_REFUTED: f64 = 1.05;
/// RTTs until a change of the rate shows in the RTT of the data.
const EFFECT_RTTS: u32 = 2;
/// RTTs after a queue or a loss until a higher rate is tried.
const RTTS_AFTER_QUEUE: u32 = 16;
/// A queue of this length lowers the rate.
const NOTICEABLE_QUEUE: Duration = Duration::from_millis(3);
/// RTTs of a constant rate, in which the burst is spread.
const SPREADING_RTTS: f64 = 2.5;
/// The longest time for which a late observation advances the edge, so that it permits no burst.
const MAX_CATCH_UP: Duration = Duration::from_millis(4);
/// The edge's lead over the arrived bytes, over the rate's BDP.
const LEAD: f64 = 1.02;
/// An addition to that lead: packets arrive in aggregates of up to this size.
const MIN_LEAD: Bytes = Bytes::kib(96);
/// The rate after a queue was noticed, over the rate before.
const QUEUE_PACE_SHARE: f64 = 0.96;
/// A queue or a loss from this share of the bottleneck's rate on shows the bottleneck's rate itself.
const AT_CAPACITY: f64 = 0.8;
/// The rate after a loss, over the rate before.
const LOSS_PACE_SHARE: f64 = 0.85;
/// A sender that needs more RTTs than this to retransmit has a congestion window smaller than the receive window.
const MAX_RECOVERY_RTTS: u32 = 16;
/// The window is unused where, for this many RTTs and at least this time, the goodput is below this share of the rate.
const UNUSED_WINDOW: (u32, Duration, f64) = (8, Duration::from_secs(2), 0.25);
/// Up to this many segments out of order do not count as a loss.
const STRAY_SEGMENTS: u64 = 8;

impl ReceiveWindowPacer {
    /// Starts to listen; the rate never exceeds `limit`.
    pub fn new(limit: Option<Rate>) -> Self {
        Self { phase: WindowPacerPhase::Listen(PacketTrains::default()), limit }
    }

    /// Observes the connection at `now`, since any fixed moment, every few milliseconds and after each read.
    pub fn observe(&mut self, seen: &ReceiverObservation, now: Duration) -> WindowStep {
        if seen.rtt.get() < MIN_RECEIVER_PACED_RTT {
            self.phase = WindowPacerPhase::Off;
        }
        match &mut self.phase {
            WindowPacerPhase::Off => WindowStep::Off,
            WindowPacerPhase::Listen(trains) => {
                let Some(train) = trains.ended(seen.read + seen.unread, now) else {
                    return WindowStep::Listen;
                };
                if seen.out_of_order > STRAY_SEGMENTS || train.is_measurable() && train.rate > MAX_TRAIN_RATE
                {
                    self.phase = WindowPacerPhase::Off;
                    return WindowStep::Off;
                }
                if !(train.is_measurable() && (train.proven || train.is_large())) {
                    return WindowStep::Listen;
                }
                let edge = WindowEdge::new(train, std::mem::take(trains), seen, now);
                let window = edge.window(seen.read);
                self.phase = WindowPacerPhase::Hold(Box::new(edge));
                WindowStep::Hold(window)
            }
            WindowPacerPhase::Hold(edge) => {
                edge.advance(seen, now);
                edge.review(seen, now);
                edge.rate = self.limit.map_or(edge.rate, |limit| edge.rate.min(limit));
                if edge.is_beyond_recovery(seen, now)
                    || edge.is_unused(seen, now)
                    || edge.rate > MAX_TRAIN_RATE
                {
                    self.phase = WindowPacerPhase::Off;
                    return WindowStep::Off;
                }
                WindowStep::Hold(edge.window(seen.read))
            }
        }
    }
}

impl WindowEdge {
    /// Starts after a burst that has shown the bottleneck's rate; its acknowledgements have released twice its size.
    fn new(train: PacketTrain, trains: PacketTrains, seen: &ReceiverObservation, now: Duration) -> Self {
        let rtt = seen.rtt.get();
        let round =
            RoundTrip { since: now, arrived: seen.read + seen.unread, out_of_order: seen.out_of_order };
        Self {
            at: seen.read + seen.unread + seen.offered,
            rate: Rate::over(train.size * 2, rtt),
            capacity: train.rate,
            observed: now,
            still_until: now + rtt - MAX_CATCH_UP * 2,
            spread_from: now + rtt.mul_f64(SPREADING_RTTS),
            cut_from: now + rtt.mul_f64(SPREADING_RTTS),
            step_from: now,
            step: STEP_RANGE.0,
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

    /// Advances the edge at the rate since the last observation.
    fn advance(&mut self, seen: &ReceiverObservation, now: Duration) {
        let (time, rtt) = (now.saturating_sub(self.observed), seen.rtt.get());
        self.observed = now;
        if now < self.still_until {
            return;
        }
        let most = self.capacity.scaled(CAPACITY_SHARE);
        if now >= self.spread_from && self.rate < most && self.recovery.is_none() {
            let growth = match self.lost {
                true => GROWTH_AFTER_LOSS,
                false if self.rate < self.capacity.scaled(FAST_GROWTH_UNTIL) => GROWTH_PER_RTT.0,
                false => GROWTH_PER_RTT.1,
            };
            self.rate = self.rate.scaled(growth.powf(time.as_secs_f64() / rtt.as_secs_f64())).min(most);
        }
        let before = self.at;
        self.at += self.rate.bytes_in(time.min(MAX_CATCH_UP));
        if now >= self.spread_from {
            let ahead = seen.read + seen.unread + self.rate.scaled(LEAD).bytes_in(rtt) + MIN_LEAD;
            // An announced window must not shrink (RFC 9293, section 3.8.6).
            self.at = self.at.min(ahead).max(before);
        }
    }

    /// Returns whether the sender takes too long to retransmit after a loss.
    fn is_beyond_recovery(&self, seen: &ReceiverObservation, now: Duration) -> bool {
        self.recovery
            .is_some_and(|recovery| now.saturating_sub(recovery.since) > seen.rtt.get() * MAX_RECOVERY_RTTS)
    }

    /// Returns whether the sender has long used little of the window.
    fn is_unused(&self, seen: &ReceiverObservation, now: Duration) -> bool {
        let long = UNUSED_WINDOW.1.max(seen.rtt.get() * UNUSED_WINDOW.0);
        self.unused.is_some_and(|since| now.saturating_sub(since) >= long)
    }

    /// Checks for losses and queues, and once per RTT for unused capacity.
    ///
    /// After a loss the sender's congestion window is still larger than the receive window, of which it was the double: the edge
    /// continues to pace.
    fn review(&mut self, seen: &ReceiverObservation, now: Duration) {
        let (time, rtt) = (now.saturating_sub(self.round.since), seen.rtt.get());
        let arrived = seen.read + seen.unread;
        // A server that reads a cold disk sends a burst in pieces, the first of which shows too low a rate.
        if now < self.spread_from
            && let Some(train) = self.trains.observe(arrived, now)
            && train.proven
        {
            self.capacity = self.capacity.max(train.rate);
        }
        match self.recovery {
            // Data sent before the sender noticed the loss is out of order too.
            Some(recovery) if arrived < recovery.upto => {}
            Some(_) => {
                self.recovery = None;
                self.spread_from = now + rtt;
                self.round = RoundTrip { since: now, arrived, out_of_order: seen.out_of_order };
            }
            None if seen.out_of_order > self.round.out_of_order + STRAY_SEGMENTS => {
                self.recovery = Some(LossRecovery { since: now, upto: self.at });
                self.lost = true;
                self.slow_down(LOSS_PACE_SHARE, rtt, now);
            }
            None if seen.data_rtt.get() > rtt + NOTICEABLE_QUEUE && now >= self.cut_from => {
                self.slow_down(QUEUE_PACE_SHARE, rtt, now);
            }
            None if time < rtt => {}
            None => {
                let goodput = Rate::over(arrived - self.round.arrived, time);
                // A sender that pauses shows nothing of its window.
                let little = goodput > Rate::default() && goodput < self.rate.scaled(UNUSED_WINDOW.2);
                self.unused = little.then(|| self.unused.unwrap_or(self.round.since));
                let full = goodput > self.rate.scaled(CAPACITY_SHARE)
                    && self.rate >= self.capacity.scaled(CAPACITY_SHARE);
                if full && now >= self.step_from {
                    self.step_up(rtt, now);
                }
                self.round = RoundTrip { since: now, arrived, out_of_order: seen.out_of_order };
            }
        }
    }

    fn step_up(&mut self, rtt: Duration, now: Duration) {
        self.rate = self.rate.scaled(1.0 + self.step);
        if self.rate > self.capacity.scaled(CAPACITY_REFUTED) {
            self.step = (self.step * 2.0).min(STEP_RANGE.1);
        }
        self.step_from = now + rtt * EFFECT_RTTS;
    }

    /// Lowers the rate to `share`; near the capacity, lowers the capacity too.
    fn slow_down(&mut self, share: f64, rtt: Duration, now: Duration) {
        let near = self.rate >= self.capacity.scaled(AT_CAPACITY);
        self.rate = self.rate.scaled(share);
        if near {
            self.capacity = self.rate.scaled(1.0 / CAPACITY_SHARE);
        }
        self.cut_from = now + rtt * EFFECT_RTTS;
        self.step_from = now + rtt * RTTS_AFTER_QUEUE;
        self.step = STEP_RANGE.0;
    }
}
