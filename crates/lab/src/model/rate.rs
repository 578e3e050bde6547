//! The bottleneck: sends one packet at a time at a fixed rate, and queues the others.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use longhaul_core::units::Bytes;

use super::{Background, BackgroundCounts, DropCause, Fate, Line, Node, Time};

/// The backlog of a bottleneck, including the packet in transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Bytes, at the IP layer.
    pub bytes: Bytes,
    /// Packets.
    pub packets: u64,
    /// Idle time of queue and line; zero while they are busy.
    pub idle: Duration,
}

impl Backlog {
    /// Adds the packet in transmission to a queue's backlog.
    pub(super) fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, packets: self.packets + other.packets, idle: self.idle }
    }
}

/// The decision about a packet that arrives at a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueVerdict {
    /// Joins the queue.
    Admitted,
    /// Dropped early, or marked if it is ECN-capable.
    Early,
    /// Dropped: the queue is full.
    Full,
}

/// An admission policy of a queue: DropTail, or active queue management.
pub trait AdmissionPolicy: fmt::Debug + Send {
    /// Decides about a packet of `size` bytes that finds `backlog` at `now`.
    fn judge(&mut self, now: Time, backlog: Backlog, size: Bytes) -> QueueVerdict;

    /// Returns whether such a packet may join a queue that does not mark.
    fn admits(&mut self, now: Time, backlog: Backlog, size: Bytes) -> bool {
        self.judge(now, backlog, size) == QueueVerdict::Admitted
    }
}

/// Sends packets at a fixed rate in order, and queues those that an [`AdmissionPolicy`] admits.
#[derive(Debug)]
pub struct RatedQueue {
    line: PacketQueue,
    background: Option<Background>,
}

impl RatedQueue {
    /// Creates a bottleneck with the given line behind a queue; the rate of background traffic must
    /// be below the line's.
    pub fn new(line: Line, admission: Box<dyn AdmissionPolicy>, background: Option<Background>) -> Self {
        let (queue, backlog) = (VecDeque::new(), Backlog::default());
        Self { line: PacketQueue { line, admission, free: Time::START, queue, backlog }, background }
    }

    /// Processes the background's arrivals before a packet at `now`.
    ///
    /// After an idle time, only the last 100 ms are simulated per packet: earlier packets found an
    /// idle line, and left neither losses nor a queue.
    fn merge_background(&mut self, now: Time) {
        const FOLLOWED: Duration = Duration::from_millis(100);
        let Some(background) = &mut self.background else { return };
        let followed_from = Time::START + now.since(Time::START + FOLLOWED);
        while let Some(at) = background.next_until(now) {
            if at < followed_from && self.line.free <= at {
                background.skip_to(followed_from);
            } else {
                background.arrived(self.line.send(at, background.size).is_some());
            }
        }
    }
}

impl Node for RatedQueue {
    fn pass(&mut self, now: Time, size: Bytes) -> Fate {
        self.merge_background(now);
        self.line.send(now, size).map_or(Fate::Dropped(DropCause::Queue), Fate::Leaves)
    }

    fn queue(&self) -> Option<(Backlog, Time)> {
        Some((self.line.backlog, self.line.free))
    }

    fn background(&self) -> Option<BackgroundCounts> {
        self.background.as_ref().map(|background| background.counts)
    }
}

/// The queue of all packets, and its line.
#[derive(Debug)]
struct PacketQueue {
    line: Line,
    admission: Box<dyn AdmissionPolicy>,
    /// End of transmission of the last queued packet.
    free: Time,
    /// Departure and size of each packet that has not departed.
    queue: VecDeque<(Time, Bytes)>,
    backlog: Backlog,
}

impl PacketQueue {
    /// Queues a packet that arrives at `now` and returns its departure; `None` if the queue refuses
    /// it.
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

    /// Removes packets that have departed by `now`.
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
