//! Whether a sender's own buffer keeps it below its windows.

use std::collections::VecDeque;
use std::time::Duration;

use super::LONG_RTT;
use super::interval::Interval;
use super::params;
use super::reading::Reading;
use super::recent_rates;

/// Whether the send buffers were empty at the ends of the last intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct SendBufferReadings(VecDeque<(Duration, bool)>);

impl SendBufferReadings {
    pub(super) fn record(&mut self, interval: &Interval) {
        self.0.push_back((interval.end, interval.now.sender.buffers_empty));
        let covered = |at: Duration| at.saturating_add(recent_rates::COVERED) >= interval.end;
        while self.0.front().is_some_and(|(at, _)| !covered(*at)) {
            self.0.pop_front();
        }
    }

    /// Returns whether the send buffers are empty for a quarter of the time: they hold less than
    /// the windows permit.
    ///
    /// BBR takes the rate that such a buffer permits for the path's rate. `tcpi_sndbuf_limited`
    /// then counts a fifth of the time only, and no other counter shows the buffer.
    pub(super) fn are_often_empty(&self) -> bool {
        let empty = self.0.iter().filter(|(_, empty)| *empty).count();
        empty >= 2 && empty as f64 >= params::LIMITING_SHARE * self.0.len() as f64
    }
}

/// Returns whether a sender that always has data keeps less in flight than congestion window, peer
/// and pacing permit: its buffer holds no more. The kernel's counter (`tcpi_sndbuf_limited`) does
/// not count while acknowledgements free the buffer as fast as the program fills it.
pub(super) fn is_below_windows(interval: &Interval) -> bool {
    let Reading { sender, window, path, .. } = interval.now;
    let (Some(congestion), Some(rtt)) = (sender.congestion_window, path.data_rtt) else { return false };
    let most = window.map_or(congestion, |window| window.min(congestion)).get() as f64;
    let rate = interval.rate();
    // The kernel's own pacing allows 1.2 windows a round trip (net.ipv4.tcp_pacing_ca_ratio).
    let unpaced = sender.pacing.is_none_or(|pacing| pacing > rate.scaled(1.5));
    let in_flight = rate.bdp(rtt).get() as f64;
    rtt.get() >= LONG_RTT
        && unpaced
        && interval.busy_share() > params::BUSY_SHARE
        && in_flight < most * params::FULL_WINDOW_SHARE
}
