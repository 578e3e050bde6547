//! The interface of tuners of the number of connections, and a fixed number.

use std::fmt;
use std::time::Duration;

use longhaul_core::tune::streams::Interval;
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

    /// Reports an interval that ended `now` after the session's start; returns the number of connections.
    fn observe(&mut self, _seen: &Interval, _now: Duration) -> usize {
        self.streams()
    }
}

/// A constant number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed(pub usize);

impl Tuner for Fixed {
    fn streams(&self) -> usize {
        self.0
    }
}
