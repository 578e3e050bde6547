//! The results of a download session.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

/// The record of a session; times are since the network's start.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// Start of the session.
    pub begins: Duration,
    /// Arrival of the last packet; `None` if incomplete.
    pub ends: Option<Duration>,
    /// The requested chunks, in order.
    pub chunks: Vec<ChunkRecord>,
    /// The course of the session, about one entry per second.
    pub seconds: Vec<SecondRecord>,
}

/// A part of a file, requested at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkRecord {
    /// Time of the request.
    pub from: Duration,
    /// Time of the last packet.
    pub to: Duration,
    /// Number of connections.
    pub streams: usize,
    /// Goodput of the chunk.
    pub goodput: Rate,
}

/// One second of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecondRecord {
    /// End of the second.
    pub at: Duration,
    /// Goodput of the second.
    pub goodput: Rate,
    /// Number of connections requested by the tuner at the end.
    pub streams: usize,
}

impl SessionRecord {
    pub(super) fn new(begins: Duration) -> Self {
        Self { begins, ends: None, chunks: Vec::new(), seconds: Vec::new() }
    }

    /// Returns the paper's mean transfer rate, file over time; `None` if `file` is incomplete.
    pub fn rate(&self, file: Bytes) -> Option<Rate> {
        Some(Rate::over(file, self.ends?.saturating_sub(self.begins)))
    }

    /// Returns the mean goodput between two times since the network's start; zero without data.
    pub fn goodput(&self, from: Duration, to: Duration) -> Rate {
        let within = || self.seconds.iter().filter(|second| second.at > from && second.at <= to);
        let sum: f64 = within().map(|second| second.goodput.as_bits_per_sec() as f64).sum();
        Rate::bits_per_sec((sum / within().count().max(1) as f64) as u64)
    }
}
