//! The results of a download session.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

/// What became of a session; times are since the network's start.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// When it began.
    pub begins: Duration,
    /// When the last packet came; `None` where it did not.
    pub ends: Option<Duration>,
    /// What it asked for, piece by piece.
    pub chunks: Vec<ChunkRecord>,
    /// Its course, about each second.
    pub seconds: Vec<SecondRecord>,
}

/// A part of a file that was asked for at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkRecord {
    /// When it was asked for.
    pub from: Duration,
    /// When it had come.
    pub to: Duration,
    /// Over how many connections.
    pub streams: usize,
    /// At which rate.
    pub goodput: Rate,
}

/// A second of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecondRecord {
    /// Its end.
    pub at: Duration,
    /// What came in it.
    pub goodput: Rate,
    /// How many connections were wanted at its end.
    pub streams: usize,
}

impl SessionRecord {
    pub(super) fn new(begins: Duration) -> Self {
        Self { begins, ends: None, chunks: Vec::new(), seconds: Vec::new() }
    }

    /// Returns the paper's mean transfer rate, file over time; `None` where `file` did not come whole.
    pub fn rate(&self, file: Bytes) -> Option<Rate> {
        Some(Rate::over(file, self.ends?.saturating_sub(self.begins)))
    }

    /// Returns the mean goodput between two times since the network's start; zero where nothing was seen there.
    pub fn goodput(&self, from: Duration, to: Duration) -> Rate {
        let within = || self.seconds.iter().filter(|second| second.at > from && second.at <= to);
        let sum: f64 = within().map(|second| second.goodput.as_bits_per_sec() as f64).sum();
        Rate::bits_per_sec((sum / within().count().max(1) as f64) as u64)
    }
}
