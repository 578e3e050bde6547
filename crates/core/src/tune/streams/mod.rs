//! The number of streams, tuned.

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

/// What is known when a transfer starts.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Of the empty path.
    pub rtt: Rtt,
    /// Still to fetch.
    pub left: Bytes,
    /// The most streams there may be.
    pub most: usize,
    /// What an earlier transfer found.
    pub remembered: Option<Remembered>,
}

/// What a path was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Of the empty path.
    pub rtt: Rtt,
    /// What it brought.
    pub rate: Rate,
    /// Over so many streams.
    pub streams: usize,
}

/// What an interval of about a round trip showed.
#[derive(Debug, Clone, Copy)]
pub struct Interval {
    /// Bytes over time.
    pub goodput: Rate,
    /// Of the empty path.
    pub rtt: Rtt,
    /// Of the data now: the queue shows.
    pub data_rtt: Option<Rtt>,
    /// Connections that carried data.
    pub streams: usize,
    /// Packets out of order in this interval: losses as a receiver sees them.
    pub out_of_order: u64,
    /// Still to fetch.
    pub left: Bytes,
    /// Our disk, limit or CPU, not the network, held the streams.
    pub held_back: bool,
}

/// Chooses the number of streams.
#[derive(Debug, Clone)]
pub struct StreamTuner {
    streams: usize,
    most: usize,
    before: Rate,
    last: Option<Remembered>,
}

impl StreamTuner {
    /// Starts.
    pub fn new(start: &Start) -> Self {
        let streams = start.remembered.map_or(1, |r| r.streams).clamp(1, start.most.max(1));
        Self { streams, most: start.most.max(1), before: Rate::default(), last: None }
    }

    /// Returns the number wanted now.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Observes an interval; returns the number wanted from now on.
    pub fn observe(&mut self, seen: &Interval, _now: Duration) -> usize {
        self.last = Some(Remembered { rtt: seen.rtt, rate: seen.goodput, streams: seen.streams });
        if !seen.held_back && seen.goodput > self.before.scaled(1.1) {
            self.before = seen.goodput;
            self.streams = (self.streams * 2).min(self.most);
        }
        self.streams
    }

    /// Learns that the server allows no more than `open` for now.
    pub fn refused(&mut self, open: usize, _now: Duration) {
        self.most = open.max(1);
        self.streams = self.streams.min(self.most);
    }

    /// Returns what is worth remembering.
    pub fn conclusion(&self) -> Option<Remembered> {
        self.last
    }
}
