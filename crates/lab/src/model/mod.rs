//! The emulated link: pure, seeded, without a clock.
//!
//! A [`Link`] carries packets one way. It is a chain of [`Node`]s, one file each. A node maps the
//! arrival of a packet to its departure or drop. Nodes are FIFO, so the result is known on arrival,
//! and a link runs in real time or in virtual time.

mod ack_compression;
mod background;
mod burst_loss;
mod delay;
pub mod discipline;
pub mod held;
mod line;
mod loss;
pub mod paced_sender;
mod queue_limit;
mod rate;
mod red;
pub mod session;
pub mod tcp;
#[cfg(test)]
pub(crate) mod tests;
mod time;

use std::fmt;

use longhaul_core::units::Bytes;

pub use ack_compression::AckCompression;
pub use background::{Background, BackgroundCounts};
pub use burst_loss::{BurstLoss, GilbertElliott};
pub use delay::Delay;
pub use line::Line;
pub use loss::RandomLoss;
pub use queue_limit::QueueLimit;
pub use rate::{AdmissionPolicy, Backlog, QueueVerdict, RatedQueue};
pub use red::{Red, RedParameters};
pub use time::Time;

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The packet departs at this time, never before its arrival.
    Leaves(Time),
    /// The packet was dropped.
    Dropped(DropCause),
}

/// The reason of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// The bottleneck's queue refused the packet: full, or early drop.
    Queue,
    /// Random loss.
    Loss,
}

/// One node of a link.
pub trait Node: fmt::Debug + Send {
    /// Returns the fate of a packet of `size` bytes at the IP layer that arrives at `now`.
    ///
    /// Calls are in order of arrival; departures must keep that order.
    fn pass(&mut self, now: Time, size: Bytes) -> Fate;

    /// Returns the node's backlog, and when its last packet departs; `None` for a node without a
    /// queue.
    fn queue(&self) -> Option<(Backlog, Time)> {
        None
    }

    /// Returns the counts of the node's background traffic; `None` without background.
    fn background(&self) -> Option<BackgroundCounts> {
        None
    }
}

/// One direction of a path: a chain of nodes.
#[derive(Debug, Default)]
pub struct Link {
    nodes: Vec<Box<dyn Node>>,
}

impl Link {
    /// Creates a link without nodes, which forwards packets without delay.
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

    /// Returns the bottleneck's backlog after the last arrival, including it, and when its last
    /// packet departs.
    pub fn queue(&self) -> Option<(Backlog, Time)> {
        self.nodes.iter().find_map(|node| node.queue())
    }

    /// Returns the background traffic's counts up to the last arrival; zero without background.
    pub fn background(&self) -> BackgroundCounts {
        self.nodes.iter().find_map(|node| node.background()).unwrap_or_default()
    }
}
