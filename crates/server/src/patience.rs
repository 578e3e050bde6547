//! Telling a slow peer from a dead one.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::tcp_info;

/// After how many stall times a peer's mean rate says something about it.
const SETTLED: u32 = 3;

/// How far a peer has acknowledged, as last looked at.
///
/// A peer that reads a little at a time goes on acknowledging, though its window may open in steps
/// of some kilobytes; one that is gone, or has stopped reading, does not. What the socket accepts
/// says less: a send buffer fills long before it drains.
pub(crate) struct Patience {
    stall: Duration,
    slowest: Rate,
    started: Instant,
    first: Bytes,
    acked: Bytes,
    /// When to look at the mean rate again.
    due: Instant,
}

impl Patience {
    /// Looks for the first time. A peer must acknowledge within `stall`, and at `slowest` on average.
    pub(crate) fn new(socket: impl AsFd, stall: Duration, slowest: Rate) -> Self {
        let (acked, now) = (acked(socket).unwrap_or_default(), Instant::now());
        Self { stall, slowest, started: now, first: acked, acked, due: now + stall * SETTLED }
    }

    /// Looks again after a stall; returns whether the peer has acknowledged anything since the last look.
    pub(crate) fn renewed(&mut self, socket: impl AsFd) -> bool {
        let now = acked(&socket).unwrap_or(self.acked);
        std::mem::replace(&mut self.acked, now) != now && self.keeps_up(socket)
    }

    /// Returns whether the peer is fast enough on average; cheap where it was found to be lately.
    pub(crate) fn keeps_up(&mut self, socket: impl AsFd) -> bool {
        let now = Instant::now();
        if now < self.due {
            return true;
        }
        self.due = now + self.stall;
        let acked = acked(socket).unwrap_or(self.acked).saturating_sub(self.first);
        Rate::over(acked, now - self.started) >= self.slowest
    }
}

fn acked(socket: impl AsFd) -> Option<Bytes> {
    tcp_info::read(socket).ok()?.bytes_acked()
}
