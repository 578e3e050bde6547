//! A link that holds its packets: their fate is not known on arrival.
//!
//! A [`Link`](super::Link) determines a packet's fate on arrival. That is impossible if a queue
//! drops at its head (CoDel), serves flows in turn (FQ-CoDel) or precedes a second queue, or if
//! packets are reordered. A [`HeldLink`] takes `now` and returns the time of its next event.

mod tail;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::discipline::{Discipline, QueuedPacket};
use super::{Background, BackgroundCounts, Backlog, DropCause, Line, Time};

pub use tail::Tail;

/// Id of background packets, which belong to no host.
const BACKGROUND: u64 = u64::MAX;
/// Flow hash of background packets.
const BACKGROUND_FLOW: u64 = 0x9e37_79b9_7f4a_7c15;

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldEvent {
    /// The packet was dropped.
    Dropped {
        /// Id of the packet.
        id: u64,
        /// Reason of the drop.
        cause: DropCause,
    },
    /// The packet departs.
    Leaves(Departure),
}

/// The departure of a packet, never before its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// Id of the packet.
    pub id: u64,
    /// Time of departure.
    pub at: Time,
    /// Time in queues and in transmission.
    pub sojourn: Duration,
    /// Whether to set the congestion mark (CE).
    pub is_marked: bool,
    /// Whether to flip one bit.
    pub is_corrupted: bool,
    /// Whether the packet departs twice at this time.
    pub is_doubled: bool,
    /// Whether the packet was held back, so that others overtake it.
    pub is_reordered: bool,
}

/// The bottlenecks that a pair of hosts crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Crossing {
    /// All bottlenecks.
    #[default]
    All,
    /// Only the first bottleneck.
    First,
    /// Only the second bottleneck.
    Second,
}

/// A queue and its line.
#[derive(Debug)]
pub struct Bottleneck {
    discipline: Box<dyn Discipline>,
    line: Line,
    background: Option<Background>,
    /// End of the current transmission, and its packet.
    sending: Option<(Time, QueuedPacket)>,
}

impl Bottleneck {
    /// Creates an idle bottleneck.
    pub fn new(discipline: Box<dyn Discipline>, line: Line, background: Option<Background>) -> Self {
        Self { discipline, line, background, sending: None }
    }

    /// Returns the end of the current transmission.
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

/// One direction of a path, as a held link.
#[derive(Debug)]
pub struct HeldLink {
    bottlenecks: Vec<Bottleneck>,
    /// The bottlenecks that each pair crosses; all for unlisted pairs.
    crossings: Vec<Crossing>,
    tail: Tail,
}

impl HeldLink {
    /// Creates a link of consecutive bottlenecks, followed by `tail`.
    pub fn new(bottlenecks: Vec<Bottleneck>, crossings: Vec<Crossing>, tail: Tail) -> Self {
        Self { bottlenecks, crossings, tail }
    }

    /// Returns the minimum time from the last bottleneck to the end of the link.
    pub fn least_delay(&self) -> Duration {
        self.tail.least_delay()
    }

    /// Returns the total backlog of all bottlenecks.
    pub fn backlog(&self) -> Backlog {
        self.bottlenecks.iter().fold(Backlog::default(), |sum, one| sum.and(one.backlog()))
    }

    /// Returns the background traffic's counts; zero without background.
    pub fn background(&self) -> BackgroundCounts {
        let first = self.bottlenecks.first().and_then(|first| first.background.as_ref());
        first.map(|background| background.counts).unwrap_or_default()
    }

    /// Accepts a packet at `now`; the caller must have called [`run_until`](Self::run_until) up to
    /// `now`.
    pub fn arrive(&mut self, now: Time, packet: QueuedPacket, events: &mut Vec<HeldEvent>) {
        let first = if self.crossing(packet.pair) == Crossing::Second { 1 } else { 0 };
        self.enter(first, now, QueuedPacket { entered: now, ..packet }, events);
    }

    /// Returns the time of the next event; `None` if the link is empty.
    pub fn next(&self) -> Option<Time> {
        self.bottlenecks.iter().filter_map(Bottleneck::next).min()
    }

    /// Processes all events up to `now`, in order.
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

    /// Enqueues a packet at bottleneck `index`, or passes it to the tail after the last.
    fn enter(&mut self, index: usize, now: Time, packet: QueuedPacket, events: &mut Vec<HeldEvent>) {
        let Some(bottleneck) = self.bottlenecks.get_mut(index) else {
            return events.push(self.tail.pass(now, &packet));
        };
        let mut dropped = Vec::new();
        bottleneck.arrive(now, packet, &mut dropped);
        self.report_dropped(index, &dropped, events);
    }

    /// Ends the current transmission at bottleneck `index`.
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
                    background.counts.lost += 1;
                }
            } else {
                events.push(HeldEvent::Dropped { id: packet.id, cause: DropCause::Queue });
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
            // After an idle time, only the last 100 ms are simulated per packet: earlier packets
            // have left no queue.
            background.skip_to(followed_from);
            return background.next_until(now);
        }
        Some(at)
    }

    fn background_arrives(&mut self, at: Time) {
        let Some(first) = self.bottlenecks.first_mut() else { return };
        let Some(background) = &mut first.background else { return };
        background.arrived(true);
        let (size, flow) = (background.size, BACKGROUND_FLOW);
        let packet = QueuedPacket { id: BACKGROUND, size, flow, ..QueuedPacket::default() };
        let mut dropped = Vec::new();
        first.arrive(at, packet, &mut dropped);
        self.report_dropped(0, &dropped, &mut Vec::new());
    }
}
