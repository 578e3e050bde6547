//! A link that holds its packets: for what cannot be known when a packet arrives.
//!
//! In a [`Link`](super::Link) every packet's fate is known on arrival. That is not so where a queue drops at its head (CoDel), serves
//! flows in turn (FQ-CoDel) or is followed by a second one, and packets do not keep their order where some are held back or have
//! another delay. A [`HeldLink`] is driven with `now` and answers with the time at which it must be driven again.

mod tail;
#[cfg(test)]
mod tests;

use std::time::Duration;

use longhaul_core::units::Bytes;

use super::discipline::{Discipline, QueuedPacket};
use super::{Background, BackgroundCounts, Backlog, Cause, Line, Time};

pub use tail::{Impairments, Tail};

/// The id of packets that belong to the background, and to no host.
const BACKGROUND: u64 = u64::MAX;
/// The flow of the background's packets.
const BACKGROUND_FLOW: u64 = 0x9e37_79b9_7f4a_7c15;

/// A packet that arrives at a held link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldPacket {
    /// The caller's number for it; below `u64::MAX`.
    pub id: u64,
    /// Its size at the IP layer.
    pub size: Bytes,
    /// A hash of its flow.
    pub flow: u64,
    /// Whether its sender understands marks (ECT).
    pub takes_marks: bool,
    /// Which pair of hosts it belongs to.
    pub pair: u16,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldEvent {
    /// It is gone.
    Dropped {
        /// The caller's.
        id: u64,
        /// Why.
        cause: Cause,
    },
    /// It leaves, never before it came.
    Leaves {
        /// The caller's.
        id: u64,
        /// When.
        at: Time,
        /// How long it waited in queues and was being sent.
        sojourn: Duration,
        /// Whether it is to carry the mark of congestion (CE).
        is_marked: bool,
        /// How many bits of it are to be flipped: 0 or 1.
        is_corrupted: bool,
        /// Whether it leaves a second time at the same time.
        is_doubled: bool,
    },
}

/// Which bottlenecks a pair of hosts crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Crossing {
    /// All there are.
    #[default]
    All,
    /// Only the first.
    First,
    /// Only the second.
    Second,
}

/// A queue and the line that serves it.
#[derive(Debug)]
pub struct Bottleneck {
    discipline: Box<dyn Discipline>,
    line: Line,
    background: Option<Background>,
    /// What the line sends, and when that is out.
    sending: Option<(Time, QueuedPacket)>,
}

impl Bottleneck {
    /// Makes an idle one.
    pub fn new(discipline: Box<dyn Discipline>, line: Line, background: Option<Background>) -> Self {
        Self { discipline, line, background, sending: None }
    }

    /// Returns when the packet being sent is out.
    fn next(&self) -> Option<Time> {
        self.sending.map(|(out, _)| out)
    }

    fn backlog(&self) -> Backlog {
        self.discipline.backlog().and(self.sending_backlog())
    }

    fn sending_backlog(&self) -> Backlog {
        self.sending.map_or_else(Backlog::default, |(_, packet)| Backlog {
            bytes: packet.size,
            packets: 1,
            ..Backlog::default()
        })
    }

    fn arrive(&mut self, now: Time, packet: QueuedPacket, dropped: &mut Vec<QueuedPacket>) {
        let sending = self.sending_backlog();
        self.discipline.enqueue(now, QueuedPacket { arrived: now, ..packet }, sending, dropped);
        if self.sending.is_none() {
            self.send_next(now, dropped);
        }
    }

    fn send_next(&mut self, now: Time, dropped: &mut Vec<QueuedPacket>) {
        self.sending =
            self.discipline.dequeue(now, dropped).map(|packet| (self.line.send(now, packet.size), packet));
    }
}

/// One direction of a path that holds its packets.
#[derive(Debug)]
pub struct HeldLink {
    bottlenecks: Vec<Bottleneck>,
    /// Which of them the packets of each pair cross; all where a pair is not listed.
    crossings: Vec<Crossing>,
    tail: Tail,
}

impl HeldLink {
    /// Makes a link of bottlenecks in a row, and what comes behind them.
    pub fn new(bottlenecks: Vec<Bottleneck>, crossings: Vec<Crossing>, tail: Tail) -> Self {
        Self { bottlenecks, crossings, tail }
    }

    /// Returns the least time from the last bottleneck to the end of the link, for any packet.
    pub fn least_delay(&self) -> Duration {
        self.tail.least_delay()
    }

    /// Returns what waits in all bottlenecks.
    pub fn backlog(&self) -> Backlog {
        self.bottlenecks.iter().fold(Backlog::default(), |sum, one| sum.and(one.backlog()))
    }

    /// Returns what background traffic has done so far; nothing where there is none.
    pub fn background(&self) -> BackgroundCounts {
        let first = self.bottlenecks.first().and_then(|first| first.background.as_ref());
        first.map_or_else(BackgroundCounts::default, Background::counts)
    }

    /// Takes a packet at `now`; events up to `now` are to be taken with [`run_until`](Self::run_until) before.
    pub fn arrive(&mut self, now: Time, packet: HeldPacket, events: &mut Vec<HeldEvent>) {
        let HeldPacket { id, size, flow, takes_marks, pair } = packet;
        let packet =
            QueuedPacket { id, size, flow, takes_marks, is_marked: false, arrived: now, came: now, pair };
        let first = if self.crossing(pair) == Crossing::Second { 1 } else { 0 };
        self.enter(first, now, packet, events);
    }

    /// Returns when something happens next by itself; `None` while nothing is inside.
    pub fn next(&self) -> Option<Time> {
        self.bottlenecks.iter().filter_map(Bottleneck::next).min()
    }

    /// Lets everything happen that happens up to `now`, in order.
    pub fn run_until(&mut self, now: Time, events: &mut Vec<HeldEvent>) {
        loop {
            let outs =
                self.bottlenecks.iter().enumerate().filter_map(|(index, one)| Some((one.next()?, index)));
            let next_out = outs.min().filter(|(at, _)| *at <= now);
            let until = next_out.map_or(now, |(at, _)| at);
            if let Some(at) = self.background_until(until) {
                self.background_arrives(at);
            } else if let Some((at, index)) = next_out {
                self.leave(index, at, events);
            } else {
                return;
            }
        }
    }

    fn crossing(&self, pair: u16) -> Crossing {
        let known = self.crossings.get(usize::from(pair)).copied().unwrap_or_default();
        if self.bottlenecks.len() > 1 { known } else { Crossing::All }
    }

    /// Puts a packet before bottleneck `index`, or behind the last.
    fn enter(&mut self, index: usize, now: Time, packet: QueuedPacket, events: &mut Vec<HeldEvent>) {
        let Some(bottleneck) = self.bottlenecks.get_mut(index) else {
            return events.push(self.tail.pass(now, &packet));
        };
        let mut dropped = Vec::new();
        bottleneck.arrive(now, packet, &mut dropped);
        self.report_dropped(index, &dropped, events);
    }

    /// Ends the sending of a packet at bottleneck `index`.
    fn leave(&mut self, index: usize, now: Time, events: &mut Vec<HeldEvent>) {
        let Some((_, packet)) = self.bottlenecks[index].sending.take() else { return };
        let mut dropped = Vec::new();
        self.bottlenecks[index].send_next(now, &mut dropped);
        self.report_dropped(index, &dropped, events);
        if packet.id == BACKGROUND {
            return;
        }
        let next =
            if self.crossing(packet.pair) == Crossing::First { self.bottlenecks.len() } else { index + 1 };
        self.enter(next, now, packet, events);
    }

    fn report_dropped(&mut self, index: usize, dropped: &[QueuedPacket], events: &mut Vec<HeldEvent>) {
        for packet in dropped {
            if packet.id == BACKGROUND {
                if let Some(background) = &mut self.bottlenecks[index].background {
                    background.lost_one();
                }
            } else {
                events.push(HeldEvent::Dropped { id: packet.id, cause: Cause::Queue });
            }
        }
    }

    fn background_until(&mut self, now: Time) -> Option<Time> {
        const FOLLOWED: Duration = Duration::from_millis(100);
        let first = self.bottlenecks.first_mut()?;
        let background = first.background.as_mut()?;
        let at = background.next_until(now)?;
        let followed_from = Time::START + now.since(Time::START + FOLLOWED);
        if at < followed_from && first.sending.is_none() {
            // After a pause only the last of it is followed packet by packet: what came before has left nothing behind.
            background.skip_to(followed_from);
            return background.next_until(now);
        }
        Some(at)
    }

    fn background_arrives(&mut self, at: Time) {
        let Some(first) = self.bottlenecks.first_mut() else { return };
        let Some(background) = &mut first.background else { return };
        background.arrived(true);
        let packet = QueuedPacket {
            id: BACKGROUND,
            size: background.size(),
            flow: BACKGROUND_FLOW,
            takes_marks: false,
            is_marked: false,
            arrived: at,
            came: at,
            pair: 0,
        };
        let mut dropped = Vec::new();
        first.arrive(at, packet, &mut dropped);
        self.report_dropped(0, &dropped, &mut Vec::new());
    }
}
