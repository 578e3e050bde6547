//! The retransmission timeout (RFC 6298).

use std::time::Duration;

/// Minimum of Linux and ns-2; RFC 6298 recommends one second.
const MIN_RTO: Duration = Duration::from_millis(200);
const MAX_RTO: Duration = Duration::from_secs(60);

/// The retransmission timeout, estimated from RTTs.
#[derive(Debug)]
pub(super) struct Timer {
    smoothed: Duration,
    deviation: Duration,
    /// Consecutive timeouts since the last acknowledgement.
    backoff: u32,
}

impl Timer {
    /// Creates a timer from the handshake's RTT.
    pub(super) fn new(rtt: Duration) -> Self {
        Self { smoothed: rtt, deviation: rtt / 2, backoff: 0 }
    }

    /// Adds an RTT sample to the estimate.
    pub(super) fn acknowledged(&mut self, rtt: Duration) {
        self.deviation = (self.deviation * 3 + self.smoothed.abs_diff(rtt)) / 4;
        self.smoothed = (self.smoothed * 7 + rtt) / 8;
        self.backoff = 0;
    }

    /// Doubles the timeout after it expired; returns whether it is the first since the last acknowledgement.
    pub(super) fn ran_out(&mut self) -> bool {
        self.backoff += 1;
        self.backoff == 1
    }

    /// Returns the smoothed RTT.
    pub(super) fn rtt(&self) -> Duration {
        self.smoothed
    }

    /// Returns the timeout.
    pub(super) fn timeout(&self) -> Duration {
        let plain = (self.smoothed + self.deviation * 4).max(MIN_RTO);
        plain.saturating_mul(1 << self.backoff.min(10)).min(MAX_RTO)
    }
}
