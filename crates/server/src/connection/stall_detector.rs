//! Detects stalled and too slow peers by the bytes that they acknowledge.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::tcp_info;

/// A peer's mean rate is compared with the limit after this many stall timeouts, so that slow start
/// does not count.
pub(crate) const SETTLING_STALLS: u32 = 3;

/// Follows how far a peer has acknowledged.
///
/// A slow peer acknowledges a little at a time, though its window may open in steps of some
/// kilobytes; a stalled or vanished one does not. Bytes that the socket accepts say less: a send
/// buffer fills long before it drains.
pub(crate) struct StallDetector {
    stall: Duration,
    slowest: Rate,
    started: Instant,
    first: Bytes,
    acked: Bytes,
    /// When the mean rate is to be checked next.
    due: Instant,
}

impl StallDetector {
    /// Starts with the bytes acknowledged so far. A peer must acknowledge within `stall`, and at
    /// `slowest` on average.
    pub(crate) fn new(socket: impl AsFd, stall: Duration, slowest: Rate) -> Self {
        let (acked, now) = (acked(socket).unwrap_or_default(), Instant::now());
        Self { stall, slowest, started: now, first: acked, acked, due: now + stall * SETTLING_STALLS }
    }

    /// Returns whether the peer has acknowledged anything since the last call, and is fast enough
    /// on average.
    ///
    /// To be called each time a stall timeout has passed without progress.
    pub(crate) fn has_progressed(&mut self, socket: impl AsFd) -> bool {
        let now = acked(&socket).unwrap_or(self.acked);
        std::mem::replace(&mut self.acked, now) != now && self.is_fast_enough(socket)
    }

    /// Returns whether the peer is fast enough on average; reads the socket once per stall timeout
    /// only.
    pub(crate) fn is_fast_enough(&mut self, socket: impl AsFd) -> bool {
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
