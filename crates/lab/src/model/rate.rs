//! The bottleneck: serves packets one at a time at a fixed rate, and queues the others.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::{Background, BackgroundCounts, Cause, Fate, Line, Node, Time};

/// What waits in front of the bottleneck, the packet being sent included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Bytes, at the IP layer.
    pub bytes: Bytes,
    /// Packets.
    pub packets: u64,
    /// How long nothing has waited and nothing was sent; zero where something is.
    pub idle: Duration,
}

impl Backlog {
    /// Adds another, as the packet being sent.
    pub(super) fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, packets: self.packets + other.packets, idle: self.idle }
    }
}

/// Decides which packets a queue takes: DropTail, or an active queue management.
pub trait Admission: fmt::Debug + Send {
    /// Says whether a packet of `size` bytes that meets `backlog` at `now` may join it.
    fn admits(&mut self, now: Time, backlog: Backlog, size: Bytes) -> bool;
}

/// Sends packets at a fixed rate, in order, and queues what an [`Admission`] lets in.
#[derive(Debug)]
pub struct RateLimit {
    line: PacketQueue,
    background: Option<Background>,
}

impl RateLimit {
    /// Makes a bottleneck of `rate` (bytes of the IP layer; at least 1 bit/s) behind a queue.
    pub fn new(rate: Rate, admission: impl Admission + 'static) -> Self {
        Self::on(Line::fixed(rate), admission)
    }

    /// Makes a bottleneck that sends as `line` does.
    pub fn on(line: Line, admission: impl Admission + 'static) -> Self {
        let line = PacketQueue {
            line,
            admission: Box::new(admission),
            free: Time::START,
            queue: VecDeque::new(),
            backlog: Backlog::default(),
        };
        Self { line, background: None }
    }

    /// Lets `background` share queue and rate; to be below the rate, as what it leaves is all there is.
    pub fn shared_with(mut self, background: Background) -> Self {
        self.background = Some(background);
        self
    }

    /// Lets those packets of the background arrive that come before one at `now`.
    ///
    /// After a pause only the last of it is followed packet by packet: what came before has found the line idle
    /// again and again, has lost nothing, and has left nothing behind.
    fn merge_background(&mut self, now: Time) {
        const FOLLOWED: Duration = Duration::from_millis(100);
        let Some(background) = &mut self.background else { return };
        let followed_from = Time::START + now.since(Time::START + FOLLOWED);
        while let Some(at) = background.next_until(now) {
            if at < followed_from && self.line.free <= at {
                background.skip_to(followed_from);
            } else {
                background.arrived(self.line.send(at, background.size()).is_some());
            }
        }
    }
}

impl Node for RateLimit {
    fn pass(&mut self, now: Time, size: Bytes) -> Fate {
        self.merge_background(now);
        self.line.send(now, size).map_or(Fate::Dropped(Cause::Queue), Fate::Leaves)
    }

    fn queue(&self) -> Option<(Backlog, Time)> {
        Some((self.line.backlog, self.line.free))
    }

    fn background(&self) -> Option<BackgroundCounts> {
        self.background.as_ref().map(Background::counts)
    }
}

/// The queue of all packets, and the line that serves it.
#[derive(Debug)]
struct PacketQueue {
    line: Line,
    admission: Box<dyn Admission>,
    /// When the last packet taken is out.
    free: Time,
    /// Departure and size of each packet not yet out.
    queue: VecDeque<(Time, Bytes)>,
    backlog: Backlog,
}

impl PacketQueue {
    /// Takes a packet that arrives at `now` and returns when it is out; `None` where the queue refuses it.
    fn send(&mut self, now: Time, size: Bytes) -> Option<Time> {
        self.drain(now);
        self.backlog.idle = now.since(self.free);
        if !self.admission.admits(now, self.backlog, size) {
            return None;
        }
        self.free = self.line.send(self.free.max(now), size);
        self.queue.push_back((self.free, size));
        self.backlog.bytes += size;
        self.backlog.packets += 1;
        Some(self.free)
    }

    /// Forgets packets that are out by `now`.
    fn drain(&mut self, now: Time) {
        while let Some(&(departure, size)) = self.queue.front()
            && departure <= now
        {
            self.queue.pop_front();
            self.backlog.bytes = self.backlog.bytes - size;
            self.backlog.packets -= 1;
        }
    }
}
