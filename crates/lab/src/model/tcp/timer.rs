//! The retransmission timeout (RFC 6298).

use std::time::Duration;

/// Linux's and ns-2's; the RFC would have a second.
const MIN_RTO: Duration = Duration::from_millis(200);
const MAX_RTO: Duration = Duration::from_secs(60);

/// The retransmission timeout, from round-trip times.
#[derive(Debug)]
pub(super) struct Timer {
    smoothed: Duration,
    deviation: Duration,
    /// How often it ran out since the last acknowledgement.
    backoff: u32,
}

impl Timer {
    /// Starts from the round-trip time that opening the connection took.
    pub(super) fn new(rtt: Duration) -> Self {
        Self { smoothed: rtt, deviation: rtt / 2, backoff: 0 }
    }

    /// Takes a measured round-trip time into the estimate.
    pub(super) fn acknowledged(&mut self, rtt: Duration) {
        self.deviation = (self.deviation * 3 + self.smoothed.abs_diff(rtt)) / 4;
        self.smoothed = (self.smoothed * 7 + rtt) / 8;
        self.backoff = 0;
    }

    /// Doubles the timeout, after it ran out; says whether it has not since the last acknowledgement.
    pub(super) fn ran_out(&mut self) -> bool {
        self.backoff += 1;
        self.backoff == 1
    }

    /// Returns the round-trip time that it expects.
    pub(super) fn rtt(&self) -> Duration {
        self.smoothed
    }

    /// Returns how long to wait.
    pub(super) fn timeout(&self) -> Duration {
        let plain = (self.smoothed + self.deviation * 4).max(MIN_RTO);
        plain.saturating_mul(1 << self.backoff.min(10)).min(MAX_RTO)
    }
}
