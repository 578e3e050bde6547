//! The interface of tuners of the number of connections, and the tuners.

use std::fmt;
use std::time::Duration;

use longhaul_core::tune::apt::Apt;
use longhaul_core::tune::streams::{CountTuner, Interval, StreamTuner};
use longhaul_core::units::{Bytes, Rate};

/// Decides the number of connections of a session, and the size of its requests.
pub trait Tuner: fmt::Debug + Send {
    /// Returns the current number of connections.
    fn streams(&self) -> usize;

    /// Returns the size of the next request; `None` for the rest of the file.
    fn chunk(&self) -> Option<Bytes> {
        None
    }

    /// Reports the goodput of a complete chunk, before the next request.
    fn chunk_done(&mut self, _goodput: Rate) {}

    /// Reports an interval that ended `now` after the session's start; returns the number of
    /// connections.
    fn observe(&mut self, _seen: &Interval, _now: Duration) -> usize {
        self.streams()
    }
}

/// A constant number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedCount {
    /// The number.
    pub streams: usize,
    /// The size of requests, as APT's while it measures a number; `None` for the whole file.
    pub chunk: Option<Bytes>,
}

impl Tuner for FixedCount {
    fn streams(&self) -> usize {
        self.streams
    }

    fn chunk(&self) -> Option<Bytes> {
        self.chunk
    }
}

/// APT as published: sequential chunks, each with its own number of connections.
impl Tuner for Apt {
    fn streams(&self) -> usize {
        Self::chunk(self).streams
    }

    fn chunk(&self) -> Option<Bytes> {
        Some(Self::chunk(self).size)
    }

    fn chunk_done(&mut self, goodput: Rate) {
        Self::observe(self, goodput);
    }
}

/// Longhaul's tuner: requests the whole file, and decides about once per RTT.
impl Tuner for StreamTuner {
    fn streams(&self) -> usize {
        CountTuner::streams(self)
    }

    fn observe(&mut self, seen: &Interval, now: Duration) -> usize {
        CountTuner::observe(self, seen, now)
    }
}
