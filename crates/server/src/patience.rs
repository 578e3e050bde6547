//! Telling a slow peer from a dead one.

use std::os::fd::AsFd;

use longhaul_core::units::Bytes;
use longhaul_sys::tcp_info::TcpInfo;

/// How far a peer has acknowledged, as last looked at.
///
/// A peer that reads a byte a second goes on acknowledging; one that is gone, or has stopped
/// reading, does not. What the socket accepts says less: a send buffer fills long before it drains.
pub(crate) struct Patience {
    acked: Bytes,
}

impl Patience {
    /// Looks for the first time.
    pub(crate) fn new(socket: impl AsFd) -> Self {
        Self { acked: acked(socket).unwrap_or_default() }
    }

    /// Looks again; returns whether the peer has acknowledged anything since the last look.
    pub(crate) fn renewed(&mut self, socket: impl AsFd) -> bool {
        let now = acked(socket).unwrap_or(self.acked);
        std::mem::replace(&mut self.acked, now) != now
    }
}

fn acked(socket: impl AsFd) -> Option<Bytes> {
    TcpInfo::read(socket).ok()?.bytes_acked()
}
