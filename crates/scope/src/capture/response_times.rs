//! The times until the peer answers: from data to their acknowledgement, and from a timestamp to
//! its echo.

use std::collections::VecDeque;
use std::time::Duration;

/// Bound for unacknowledged segments and for unechoed timestamps. A fast path has more in flight
/// within one round trip; a subset of samples suffices.
const MAX_AWAITED: usize = 4096;

/// The answers to one endpoint's segments.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponseTimes {
    /// End and capture time of each unacknowledged data segment.
    awaited: VecDeque<(u64, Duration)>,
    /// Value and first capture time of each unechoed timestamp of this endpoint.
    stamps: VecDeque<(u32, Duration)>,
    /// The minimum time from data to acknowledgement.
    pub(super) to_ack: MinDuration,
    /// The minimum time from a timestamp of this endpoint to its echo.
    pub(super) to_echo: MinDuration,
}

/// The minimum of a duration, over the whole capture and over the current interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MinDuration {
    pub(super) ever: Option<Duration>,
    /// The minimum of the current interval, or of the last interval with a sample.
    pub(super) lately: Option<Duration>,
    fresh: bool,
}

impl MinDuration {
    fn add(&mut self, time: Duration) {
        self.ever = Some(self.ever.map_or(time, |ever| ever.min(time)));
        let lately = self.lately.filter(|_| self.fresh).map_or(time, |lately| lately.min(time));
        (self.lately, self.fresh) = (Some(lately), true);
    }

    fn next_interval(&mut self) {
        self.fresh = false;
    }
}

impl ResponseTimes {
    /// Adds the timestamp of a segment that this endpoint sent.
    pub(super) fn add_stamp(&mut self, at: Duration, value: u32) {
        if self.stamps.len() < MAX_AWAITED && self.stamps.back().is_none_or(|(last, _)| *last != value) {
            self.stamps.push_back((value, at));
        }
    }

    /// Adds new data that end at a sequence number.
    pub(super) fn add_data(&mut self, at: Duration, end: u64) {
        if self.awaited.len() < MAX_AWAITED {
            self.awaited.push_back((end, at));
        }
    }

    /// Forgets data that were sent again from `start` on: their acknowledgement is no RTT sample
    /// (Karn's algorithm).
    pub(super) fn sent_again(&mut self, start: u64) {
        self.awaited.retain(|(end, _)| *end <= start);
    }

    /// Adds an acknowledgement; after a gap (`had_gap`) it is no RTT sample: what arrived beyond
    /// that is acknowledged when it is filled.
    pub(super) fn acknowledge(&mut self, at: Duration, acknowledged: u64, had_gap: bool) {
        while self.awaited.front().is_some_and(|(end, _)| *end <= acknowledged) {
            if let Some((_, sent)) =
                self.awaited.pop_front().filter(|(end, _)| *end == acknowledged && !had_gap)
            {
                self.to_ack.add(at.saturating_sub(sent));
            }
        }
    }

    /// Adds the peer's echo of a timestamp.
    pub(super) fn echo(&mut self, at: Duration, echo: u32) {
        // Earlier timestamps are never echoed after this one.
        if let Some(place) = self.stamps.iter().position(|(value, _)| *value == echo) {
            let (_, first_seen) = self.stamps[place];
            self.stamps.drain(..=place);
            self.to_echo.add(at.saturating_sub(first_seen));
        }
    }

    /// Forgets the times of what is not answered yet.
    pub(super) fn forget(&mut self) {
        self.awaited.clear();
        self.stamps.clear();
    }

    pub(super) fn next_interval(&mut self) {
        self.to_ack.next_interval();
        self.to_echo.next_interval();
    }
}
