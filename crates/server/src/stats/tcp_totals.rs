//! Totals of TCP_INFO's counters, over one or more connections.

use std::ops::AddAssign;
use std::time::Duration;

use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::telemetry::Counters;

/// Counters of one or more sending connections; they only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TcpTotals {
    pub(crate) counters: Counters,
    /// Time with data to send (`tcpi_busy_time`).
    pub(crate) busy: Duration,
    /// Part of `busy` in which the peer's receive window was the limit (`tcpi_rwnd_limited`).
    pub(crate) rwnd_limited: Duration,
    /// Part of `busy` in which the send buffer was the limit (`tcpi_sndbuf_limited`).
    pub(crate) sndbuf_limited: Duration,
}

impl TcpTotals {
    /// Reads the totals of one connection.
    pub(crate) fn of(tcp: &TcpInfo) -> Self {
        let time = |us: Option<u64>| Duration::from_micros(us.unwrap_or(0));
        Self {
            counters: Counters::of(tcp),
            busy: time(tcp.tcpi_busy_time()),
            rwnd_limited: time(tcp.tcpi_rwnd_limited()),
            sndbuf_limited: time(tcp.tcpi_sndbuf_limited()),
        }
    }

    /// Returns what was counted since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            counters: self.counters.since(before.counters),
            busy: self.busy.saturating_sub(before.busy),
            rwnd_limited: self.rwnd_limited.saturating_sub(before.rwnd_limited),
            sndbuf_limited: self.sndbuf_limited.saturating_sub(before.sndbuf_limited),
        }
    }

    /// Returns the later of two readings of one connection, in whichever order they are given.
    pub(crate) fn later(self, other: Self) -> Self {
        Self {
            counters: self.counters.later(other.counters),
            busy: self.busy.max(other.busy),
            rwnd_limited: self.rwnd_limited.max(other.rwnd_limited),
            sndbuf_limited: self.sndbuf_limited.max(other.sndbuf_limited),
        }
    }
}

impl AddAssign for TcpTotals {
    fn add_assign(&mut self, other: Self) {
        self.counters += other.counters;
        self.busy += other.busy;
        self.rwnd_limited += other.rwnd_limited;
        self.sndbuf_limited += other.sndbuf_limited;
    }
}
