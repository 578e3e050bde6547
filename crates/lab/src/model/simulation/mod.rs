//! Bulk senders on a link in virtual time, alone or together, for tests of pace controllers.
//!
//! ```text
//! control -> pace --+--> packets -> link -> echo: acknowledged or lost --+--> observation -> control
//!           window -+         (one returned delay later)                 +--> window
//! ```

mod bbr;
mod congestion;
mod cubic_window;
mod flow;

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};

use super::{BackgroundCounts, Fate, Link, Time};
use crate::CrossFlows;

use congestion::INITIAL_WINDOW;
pub use congestion::SimulatedControl;
use flow::{SentPacket, SimulatedFlow};

/// Segment size: a larger packet is a burst of segments (GSO), and windows count segments.
const SEGMENT: Bytes = Bytes::new(1500);

/// A bulk sender with a TCP window and an optional pace below it.
///
/// Without a pace each acknowledgement releases all that the window allows: in slow start two packets, which arrive at
/// the bottleneck at twice its rate, in one burst per RTT. With a pace packets are spread, as in the kernel once
/// SO_MAX_PACING_RATE is set.
///
/// A lost packet is replaced by a new one: the model has no order and no end, only goodput.
#[derive(Debug)]
pub struct Simulation {
    link: Link,
    back: Duration,
    packet: Bytes,
    segments: u64,
    now: Time,
    /// The sender, followed by the cross flows.
    flows: Vec<SimulatedFlow>,
    /// Acknowledgements and losses in flight to the senders, in order.
    echoes: VecDeque<DelayedAck>,
}

/// The acknowledgement or loss of a packet, in flight to its sender.
#[derive(Debug)]
struct DelayedAck {
    at: Time,
    flow: usize,
    sent: SentPacket,
    is_lost: bool,
}

/// Totals of a sender since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowTotals {
    /// Packets put on the link.
    pub sent: u64,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Packets lost and therefore retransmitted.
    pub lost: u64,
    /// The background traffic on the link.
    pub background: BackgroundCounts,
}

/// Observations of a sender during an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowObservation {
    /// Acknowledged rate in IP-layer bytes.
    pub goodput: Rate,
    /// RTT of the last acknowledged packet.
    pub rtt: Rtt,
    /// Minimum RTT so far.
    pub min_rtt: Rtt,
    /// Congestion window in IP-layer bytes.
    pub window: Bytes,
    /// Packets lost and therefore retransmitted.
    pub retransmits: u64,
    /// Totals since the start.
    pub totals: FlowTotals,
    /// Share of the background's packets that were dropped; 0 without background.
    pub background_loss: f64,
}

impl Simulation {
    /// Creates a sender of packets of `packet` bytes at the IP layer (at least 1).
    ///
    /// `link` carries the packets; acknowledgements take `back`. A link of [`PathSpec::link`](crate::PathSpec::link)
    /// has half of the RTT, and `back` is the other half. The link needs a rate, or the sender an initial pace, to
    /// bound the data in flight.
    ///
    /// Large packets reduce the cost of simulating a fast path. Windows still count segments of 1500 bytes: CUBIC takes
    /// longer to grow the larger window of a faster path.
    pub fn new(link: Link, back: Duration, packet: Bytes) -> Self {
        let packet = packet.max(Bytes::new(1));
        let segments = (packet.get() / SEGMENT.get()).max(1);
        Self {
            link,
            back,
            packet,
            segments,
            now: Time::START,
            flows: vec![SimulatedFlow::new(segments, Time::START, None)],
            echoes: VecDeque::new(),
        }
    }

    /// Adds cross flows without a pace.
    pub fn beside(mut self, flows: CrossFlows) -> Self {
        let at = |time| Time::START + time;
        self.flows.extend(
            (0..flows.count).map(|_| SimulatedFlow::new(self.segments, at(flows.from), flows.to.map(at))),
        );
        self
    }

    /// Sets the congestion control of all senders.
    pub fn under(mut self, control: SimulatedControl) -> Self {
        self.flows.iter_mut().for_each(|flow| flow.congestion = control.start(INITIAL_WINDOW, None));
        self
    }

    /// Sets the pace: packets are sent no faster than this rate and the congestion control allow.
    pub fn set_pace(&mut self, rate: Option<Rate>) {
        self.flows[0].set_pace(rate);
    }

    /// Restarts slow start, regardless of earlier losses.
    pub fn restart_growth(&mut self) {
        self.flows[0].congestion.restart();
    }

    /// Changes the sender's congestion control; keeps the window.
    pub fn set_control(&mut self, control: SimulatedControl) {
        let (now, flow) = (self.now, &mut self.flows[0]);
        flow.congestion = control.start(flow.congestion.window(), flow.rtt.map(|_| (flow.min_rtt, now)));
    }

    /// Returns the totals so far.
    pub fn totals(&self) -> FlowTotals {
        let SimulatedFlow { sent, acknowledged, lost, .. } = self.flows[0];
        FlowTotals { sent, acknowledged, lost, background: self.link.background() }
    }

    /// Runs for `time`; requests a pace from `control` after each `interval` (at least 1 µs), and keeps the pace on `None`.
    ///
    /// `control` is not called before the first acknowledgement. Its second argument is the time since the simulation's start.
    pub fn run(
        &mut self,
        time: Duration,
        interval: Duration,
        mut control: impl FnMut(FlowObservation, Duration) -> Option<Rate>,
    ) {
        let interval = interval.max(Duration::from_micros(1));
        let end = self.now + time;
        while self.now < end {
            let before = (self.now, self.totals());
            self.advance((self.now + interval).min(end));
            if let Some(observation) = self.observe(before)
                && let Some(rate) = control(observation, self.now.since(Time::START))
            {
                self.set_pace(Some(rate));
            }
        }
    }

    fn observe(&self, (begun, before): (Time, FlowTotals)) -> Option<FlowObservation> {
        let (flow, totals) = (&self.flows[0], self.totals());
        let offered = totals.background.offered - before.background.offered;
        let lost = totals.background.lost - before.background.lost;
        let acknowledged = self.packet * (totals.acknowledged - before.acknowledged);
        Some(FlowObservation {
            goodput: Rate::over(acknowledged, self.now.since(begun)),
            rtt: Rtt::new(flow.rtt?),
            min_rtt: Rtt::new(flow.min_rtt),
            window: flow.window(self.packet),
            retransmits: totals.lost - before.lost,
            totals,
            background_loss: if offered > 0 { lost as f64 / offered as f64 } else { 0.0 },
        })
    }

    /// Processes all events up to `until`.
    fn advance(&mut self, until: Time) {
        loop {
            let echo_at = self.echoes.front().map(|echo| echo.at).filter(|at| *at <= until);
            let next_departure = (0..self.flows.len())
                .filter_map(|index| Some((self.flows[index].next_departure(self.now)?, index)))
                .min()
                .filter(|(at, _)| *at <= until);
            match (echo_at, next_departure) {
                (None, None) => break,
                (Some(at), next_departure)
                    if next_departure.is_none_or(|(next_departure, _)| at <= next_departure) =>
                {
                    self.process_echo(at)
                }
                (_, Some((at, index))) => self.send(index, at),
                (Some(at), None) => self.process_echo(at),
            }
        }
        self.now = until;
    }

    fn send(&mut self, index: usize, now: Time) {
        self.now = now;
        let flow = &mut self.flows[index];
        let (at, is_lost) = match self.link.pass(now, self.packet) {
            Fate::Leaves(at) => (at + self.back, false),
            // Later acknowledgements reveal the loss.
            Fate::Dropped(_) => (now + flow.rtt.map_or(self.back, |_| flow.min_rtt), true),
        };
        // Acknowledgements and losses arrive in order of transmission.
        let at = self.echoes.back().map_or(at, |before| at.max(before.at));
        let sent = flow.send(now, self.packet);
        self.echoes.push_back(DelayedAck { at, flow: index, sent, is_lost });
    }

    fn process_echo(&mut self, now: Time) {
        let Some(echo) = self.echoes.pop_front() else { return };
        self.now = now;
        self.flows[echo.flow].process_result(&echo.sent, echo.is_lost, now);
    }
}
