//! The retransmission timer (RFC 6298).

use std::time::Duration;

use crate::model::Time;

/// Minimum of Linux and ns-2; RFC 6298 recommends one second.
const MIN_RTO: Duration = Duration::from_millis(200);
const MAX_RTO: Duration = Duration::from_secs(60);

/// The retransmission timer; during the handshake, its end.
#[derive(Debug)]
pub(super) struct Timer {
    pub(super) last_rtt: Duration,
    smoothed: Duration,
    deviation: Duration,
    /// Consecutive timeouts since the last acknowledgement.
    backoff: u32,
    /// When it expires; `None` while it is stopped.
    pub(super) deadline: Option<Time>,
    /// Time of the queued timer event, which may precede the deadline.
    alarm: Option<Time>,
}

impl Timer {
    /// Creates a timer from the handshake's RTT that expires at `opens`.
    pub(super) fn new(rtt: Duration, opens: Time) -> Self {
        Self {
            last_rtt: rtt,
            smoothed: rtt,
            deviation: rtt / 2,
            backoff: 0,
            deadline: Some(opens),
            alarm: None,
        }
    }

    /// Adds an RTT sample to the estimate.
    pub(super) fn acknowledged(&mut self, rtt: Duration) {
        self.deviation = (self.deviation * 3 + self.smoothed.abs_diff(rtt)) / 4;
        self.smoothed = (self.smoothed * 7 + rtt) / 8;
        (self.last_rtt, self.backoff) = (rtt, 0);
    }

    /// Doubles the timeout after it expired; returns whether it is the first since the last
    /// acknowledgement.
    pub(super) fn ran_out(&mut self) -> bool {
        self.backoff += 1;
        self.backoff == 1
    }

    /// Returns the timeout.
    pub(super) fn timeout(&self) -> Duration {
        let plain = (self.smoothed + self.deviation * 4).max(MIN_RTO);
        plain.saturating_mul(1 << self.backoff.min(10)).min(MAX_RTO)
    }

    /// Starts the timer.
    pub(super) fn start(&mut self, now: Time) {
        self.deadline = Some(now + self.timeout());
    }

    /// Returns the time of the next timer event, if it has to be queued.
    pub(super) fn next_alarm(&mut self) -> Option<Time> {
        let is_due = |deadline: &Time| self.alarm.is_none_or(|alarm| *deadline < alarm);
        let deadline = self.deadline.filter(is_due)?;
        self.alarm = Some(deadline);
        self.alarm
    }

    /// Returns whether the timer has expired at the timer event of `at`.
    pub(super) fn expires(&mut self, at: Time) -> bool {
        self.alarm.take_if(|alarm| *alarm == at).is_some()
            && self.deadline.is_some_and(|deadline| deadline <= at)
    }
}
