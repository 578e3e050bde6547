//! The interface of tuners of the number of connections, and the fixed number.

use std::fmt;
use std::time::Duration;

use longhaul_core::tune::streams::Interval;
use longhaul_core::units::{Bytes, Rate};

/// Decides how many connections a session uses, and how much of its file it asks for at a time.
pub trait Tuner: fmt::Debug + Send {
    /// Returns how many connections are to be used now.
    fn streams(&self) -> usize;

    /// Returns how much to ask for next; `None` for all that is left.
    fn chunk(&self) -> Option<Bytes> {
        None
    }

    /// Takes the goodput of the chunk that has come, and decides about the next.
    fn chunk_done(&mut self, _goodput: Rate) {}

    /// Takes what an interval has shown, `now` after the session's begin; returns how many connections are to be used.
    fn observe(&mut self, _seen: &Interval, _now: Duration) -> usize {
        self.streams()
    }
}

/// Always the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed(pub usize);

impl Tuner for Fixed {
    fn streams(&self) -> usize {
        self.0
    }
}
