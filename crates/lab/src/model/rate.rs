//! The bottleneck: packets leave one after the other at a fixed rate; those that wait form its queue.

use std::collections::VecDeque;
use std::fmt;

use longhaul_core::units::{Bytes, Rate};

use super::{Cause, Fate, Node, Time};

/// What waits in front of the bottleneck, the packet being sent included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Bytes, at the IP layer.
    pub bytes: Bytes,
    /// Packets.
    pub packets: u64,
}

/// Decides which packets a queue takes: DropTail, or an active queue management.
pub trait Admission: fmt::Debug + Send {
    /// Says whether a packet of `size` bytes that meets `backlog` at `now` may join it.
    fn admits(&mut self, now: Time, backlog: Backlog, size: Bytes) -> bool;
}

/// Sends packets at a fixed rate, in order, and queues what an [`Admission`] lets in.
#[derive(Debug)]
pub struct RateLimit {
    bits_per_sec: u64,
    admission: Box<dyn Admission>,
    /// When the last packet taken is out.
    free: Time,
    /// The part of a nanosecond, in units of 1 / bits_per_sec, by which `free` is too early.
    fraction: u64,
    /// Departure and size of each packet not yet out.
    queue: VecDeque<(Time, Bytes)>,
    backlog: Backlog,
}

impl RateLimit {
    /// Makes a bottleneck of `rate` (bytes of the IP layer; at least 1 bit/s) behind a queue.
    pub fn new(rate: Rate, admission: impl Admission + 'static) -> Self {
        Self {
            bits_per_sec: rate.as_bits_per_sec().max(1),
            admission: Box::new(admission),
            free: Time::START,
            fraction: 0,
            queue: VecDeque::new(),
            backlog: Backlog::default(),
        }
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

impl Node for RateLimit {
    fn pass(&mut self, now: Time, size: Bytes) -> Fate {
        self.drain(now);
        if !self.admission.admits(now, self.backlog, size) {
            return Fate::Dropped(Cause::Queue);
        }
        if self.free < now {
            (self.free, self.fraction) = (now, 0);
        }
        // Exact: what division leaves over is carried, so that a busy link never runs fast or slow.
        let work = size.get().saturating_mul(8_000_000_000).saturating_add(self.fraction);
        self.fraction = work % self.bits_per_sec;
        self.free = Time::from_nanos(self.free.as_nanos() + work / self.bits_per_sec);
        self.queue.push_back((self.free, size));
        self.backlog.bytes += size;
        self.backlog.packets += 1;
        Fate::Leaves(self.free)
    }
}
