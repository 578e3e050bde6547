//! The emulated link: pure, seeded, without a clock.
//!
//! A [`Link`] carries packets one way. It is a chain of [`Node`]s, a file each; every node answers
//! one question: a packet of this size arrives now, when does it leave, if at all? Nodes are FIFO, so
//! the answer is known on arrival, and the same link runs under real time or a virtual clock.

mod ack_compression;
mod background;
mod burst_loss;
mod cubic;
mod delay;
pub mod discipline;
mod droptail;
pub mod held;
mod jitter;
mod line;
mod loss;
pub mod paced_sender;
mod rate;
mod red;
pub mod session;
pub mod simulation;
pub mod tcp;
#[cfg(test)]
mod tests;
mod time;

use std::fmt;

use longhaul_core::units::Bytes;

pub use ack_compression::AckCompression;
pub use background::{Background, BackgroundCounts};
pub use burst_loss::{BurstLoss, GilbertElliott};
pub use delay::Delay;
pub use droptail::DropTail;
pub use jitter::Jitter;
pub use line::Line;
pub use loss::RandomLoss;
pub use rate::{Admission, Backlog, RateLimit};
use red::Verdict;
pub use red::{Red, RedParameters};
pub use time::Time;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It leaves at this time, never before it came.
    Leaves(Time),
    /// It is gone.
    Dropped(Cause),
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The queue before the bottleneck refused it: it was full, or drops early.
    Queue,
    /// It was lost at random.
    Loss,
}

/// One step of a link.
pub trait Node: fmt::Debug + Send {
    /// Takes a packet of `size` bytes at the IP layer that arrives at `now`, and says what becomes of it.
    ///
    /// Calls come in order of arrival; departures must keep that order.
    fn pass(&mut self, now: Time, size: Bytes) -> Fate;

    /// Returns what waits before it, and when the last of that is out; `None` where nothing ever waits.
    fn queue(&self) -> Option<(Backlog, Time)> {
        None
    }

    /// Returns what the background traffic that it carries has done so far; `None` where it carries none.
    fn background(&self) -> Option<BackgroundCounts> {
        None
    }
}

/// One direction of a path: nodes, passed in order.
#[derive(Debug, Default)]
pub struct Link {
    nodes: Vec<Box<dyn Node>>,
}

impl Link {
    /// Makes a link without nodes, which every packet leaves as it comes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a node.
    pub fn then(mut self, node: impl Node + 'static) -> Self {
        self.nodes.push(Box::new(node));
        self
    }

    /// Passes a packet of `size` bytes that arrives at `now` through all nodes.
    pub fn pass(&mut self, now: Time, size: Bytes) -> Fate {
        let mut at = now;
        for node in &mut self.nodes {
            match node.pass(at, size) {
                Fate::Leaves(then) => at = then,
                dropped @ Fate::Dropped(_) => return dropped,
            }
        }
        Fate::Leaves(at)
    }

    /// Returns what waited before the bottleneck after the last packet came, that included, and when the last of it is out.
    pub fn queue(&self) -> Option<(Backlog, Time)> {
        self.nodes.iter().find_map(|node| node.queue())
    }

    /// Returns what background traffic has done up to the last packet that came; nothing where there is none.
    pub fn background(&self) -> BackgroundCounts {
        self.nodes.iter().find_map(|node| node.background()).unwrap_or_default()
    }
}
