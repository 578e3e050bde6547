//! Bulk senders on a link in virtual time, alone or together: tests pace controllers.
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

use congestion::Congestion;
pub use congestion::SimulatedControl;
use flow::{SentPacket, SimulatedFlow};

/// What a packet of more bytes consists of, as a burst that the sender's offloads keep together: windows count segments.
const SEGMENT: Bytes = Bytes::new(1500);

/// A sender with as much to send as the path takes: a window as TCP's, and a pace below it.
///
/// Without a pace every acknowledgement releases at once what the window then allows: in slow start that is two packets,
/// so that they arrive at the bottleneck at twice its rate, in one clump a round trip. With a pace they are
/// spread, as the kernel does it from the moment that SO_MAX_PACING_RATE is set.
///
/// What is lost is sent again as a new packet: there is no order and no end, only goodput.
#[derive(Debug)]
pub struct Simulation {
    link: Link,
    back: Duration,
    packet: Bytes,
    segments: u64,
    now: Time,
    /// The sender, and after it those beside it.
    flows: Vec<SimulatedFlow>,
    /// What the senders will hear of each packet in flight, in order.
    echoes: VecDeque<DelayedAck>,
}

/// What returns to a sender of a packet.
#[derive(Debug)]
struct DelayedAck {
    at: Time,
    flow: usize,
    sent: SentPacket,
    is_lost: bool,
}

/// What a sender has done since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowTotals {
    /// Packets put on the link.
    pub sent: u64,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Packets found lost, and so sent again.
    pub lost: u64,
    /// The background traffic on the link.
    pub background: BackgroundCounts,
}

/// What a sender has seen in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowObservation {
    /// What was acknowledged, counting IP-layer bytes.
    pub goodput: Rate,
    /// The round-trip time of the last packet acknowledged.
    pub rtt: Rtt,
    /// The shortest round-trip time so far.
    pub min_rtt: Rtt,
    /// The congestion window, counting IP-layer bytes.
    pub window: Bytes,
    /// Packets found lost, and so sent again.
    pub retransmits: u64,
    /// What was done since the start.
    pub totals: FlowTotals,
    /// Share of the background's packets that were dropped; 0 where there were none.
    pub background_loss: f64,
}

impl Simulation {
    /// Makes a sender of packets of `packet` bytes at the IP layer (at least 1).
    ///
    /// `link` carries them; what returns to the sender takes `back`. A link made by
    /// [`PathSpec::link`](crate::PathSpec::link) has half of the round-trip time, and the other half is `back`. The link
    /// needs a rate, or the sender a pace from the start: nothing else bounds what is in flight.
    ///
    /// Large packets make a fast path cheaper to simulate. Their senders' windows begin, grow and shrink by segments of 1500 bytes all
    /// the same: CUBIC needs longer for the larger window of a faster path.
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

    /// Adds senders without a pace.
    pub fn beside(mut self, flows: CrossFlows) -> Self {
        let at = |time| Time::START + time;
        self.flows.extend(
            (0..flows.count).map(|_| SimulatedFlow::new(self.segments, at(flows.from), flows.to.map(at))),
        );
        self
    }

    /// Gives all senders this congestion control.
    pub fn under(mut self, control: SimulatedControl) -> Self {
        self.flows.iter_mut().for_each(|flow| flow.congestion = Congestion::new(control));
        self
    }

    /// Sets the pace: no packet leaves earlier than this rate allows, or than the congestion control has it.
    pub fn set_pace(&mut self, rate: Option<Rate>) {
        /// So that a pace of nothing can be raised again.
        const MIN_PACE: Rate = Rate::bits_per_sec(8_000);
        self.flows[0].set_pace(rate.map(|rate| rate.max(MIN_PACE)));
    }

    /// Restarts slow start, whatever was lost before.
    pub fn restart_growth(&mut self) {
        self.flows[0].congestion.restart();
    }

    /// Changes the sender's congestion control; the window stays.
    pub fn set_control(&mut self, control: SimulatedControl) {
        let (now, flow) = (self.now, &mut self.flows[0]);
        flow.congestion = Congestion::after(&flow.congestion, control, flow.rtt.map(|_| (flow.min_rtt, now)));
    }

    /// Returns what was done so far.
    pub fn totals(&self) -> FlowTotals {
        let SimulatedFlow { sent, acknowledged, lost, .. } = self.flows[0];
        FlowTotals { sent, acknowledged, lost, background: self.link.background() }
    }

    /// Goes on for `time`, and asks `control` for a pace after each `interval` (at least 1 µs) of it; on `None` the pace stays.
    ///
    /// Before the first acknowledgement nothing was observed, and `control` is not asked. Its second argument is the time
    /// since the simulation's start.
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

    /// Handles all events up to `until`.
    fn advance(&mut self, until: Time) {
        loop {
            let heard = self.echoes.front().map(|echo| echo.at).filter(|at| *at <= until);
            let sends = (0..self.flows.len())
                .filter_map(|index| Some((self.flows[index].sends(self.now)?, index)))
                .min()
                .filter(|(at, _)| *at <= until);
            match (heard, sends) {
                (None, None) => break,
                (Some(at), sends) if sends.is_none_or(|(sends, _)| at <= sends) => self.hear(at),
                (_, Some((at, index))) => self.send(index, at),
                (Some(at), None) => self.hear(at),
            }
        }
        self.now = until;
    }

    fn send(&mut self, index: usize, now: Time) {
        self.now = now;
        let flow = &mut self.flows[index];
        let (at, is_lost) = match self.link.pass(now, self.packet) {
            Fate::Leaves(at) => (at + self.back, false),
            // Told by the acknowledgements of those behind it.
            Fate::Dropped(_) => (now + flow.rtt.map_or(self.back, |_| flow.min_rtt), true),
        };
        // What is heard of packets is heard in their order.
        let at = self.echoes.back().map_or(at, |before| at.max(before.at));
        let sent = flow.send(now, self.packet);
        self.echoes.push_back(DelayedAck { at, flow: index, sent, is_lost });
    }

    fn hear(&mut self, now: Time) {
        let Some(echo) = self.echoes.pop_front() else { return };
        self.now = now;
        self.flows[echo.flow].hear(&echo.sent, echo.is_lost, now);
    }
}
