//! One direction of a captured connection: its data, and what the other end's acknowledgements say of them.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rtt};

use super::packet::Segment;

/// Segments, and timestamps, whose answer is awaited at once; more are in flight only within one round trip of a fast path,
/// of which a part is enough.
const MOST_AWAITED: usize = 4096;

/// Half of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Direction {
    /// The first sequence number, and the end of the highest segment, unwrapped.
    first: Option<u64>,
    highest: u64,
    /// The highest acknowledgement of the other end, unwrapped.
    acknowledged: Option<u64>,
    /// Bytes of payload, those sent again included.
    pub(super) payload: u64,
    /// Segments that are behind the highest: sent again, or reordered.
    pub(super) lost: u64,
    /// Shift of the window that this end announces, where its SYN was captured.
    scale: Option<u8>,
    /// The window that this end announced last, and the largest one.
    pub(super) window: Option<Bytes>,
    pub(super) largest_window: Bytes,
    /// Ends of segments with data and when they were seen, until they are acknowledged.
    awaited: VecDeque<(u64, Duration)>,
    /// Timestamps of this end and when they were first seen, until they are echoed.
    stamps: VecDeque<(u32, Duration)>,
    /// The least time from data to acknowledgement, ever and in the present interval.
    pub(super) to_ack: Least,
    /// The least time from a timestamp of this end to its echo.
    pub(super) to_echo: Least,
    /// The most in flight in the present interval.
    pub(super) most_in_flight: u64,
}

/// A least time, ever and of an interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Least {
    pub(super) ever: Option<Duration>,
    /// Of the present interval, or of the last one that had any.
    pub(super) lately: Option<Duration>,
    fresh: bool,
}

impl Least {
    fn add(&mut self, time: Duration) {
        self.ever = Some(self.ever.map_or(time, |ever| ever.min(time)));
        let lately = self.lately.filter(|_| self.fresh).map_or(time, |lately| lately.min(time));
        (self.lately, self.fresh) = (Some(lately), true);
    }

    fn next_interval(&mut self) {
        self.fresh = false;
    }
}

impl Direction {
    /// Adds a segment that this end sent.
    pub(super) fn sent(&mut self, at: Duration, segment: &Segment) {
        if segment.syn {
            self.scale = Some(segment.scale.unwrap_or(0));
        }
        // The field of a SYN is never scaled (RFC 7323, section 2.2).
        let shift = if segment.syn { Some(0) } else { self.scale };
        if let Some(shift) = shift.filter(|_| !segment.reset) {
            let window = Bytes::new(u64::from(segment.window) << shift);
            self.window = Some(window);
            self.largest_window = self.largest_window.max(window);
        }
        if let Some((value, _)) = segment.timestamps.filter(|_| self.stamps.len() < MOST_AWAITED)
            && self.stamps.back().is_none_or(|(last, _)| *last != value)
        {
            self.stamps.push_back((value, at));
        }
        if self.first.is_none() && (segment.syn || segment.payload > 0) {
            // A SYN takes a number itself; 2^32 lies before all others, so that none of them wraps below zero.
            let start = u64::from(segment.sequence) + u64::from(segment.syn) + (1 << 32);
            (self.first, self.highest) = (Some(start), start);
        }
        if let Some(first) = self.first.filter(|_| segment.payload > 0) {
            self.data(at, segment, first);
        }
    }

    fn data(&mut self, at: Duration, segment: &Segment, first: u64) {
        let length = u64::from(segment.payload);
        let sequence = segment.sequence.wrapping_add(u32::from(segment.syn));
        let start = unwrap(sequence, self.highest);
        // A keep-alive repeats one byte (RFC 9293, section 3.8.4).
        let keep_alive = length == 1 && start + 1 == self.highest;
        if start < first || keep_alive {
            return;
        }
        self.payload += length;
        if start < self.highest {
            self.lost += 1;
            // An acknowledgement of a segment that was sent twice says nothing of its time (Karn's algorithm).
            self.awaited.retain(|(end, _)| *end <= start);
        } else if self.awaited.len() < MOST_AWAITED {
            self.awaited.push_back((start + length, at));
        }
        self.highest = self.highest.max(start + length);
        self.most_in_flight = self.most_in_flight.max(self.in_flight());
    }

    /// Adds an acknowledgement and an echo by the other end.
    pub(super) fn answered(&mut self, at: Duration, segment: &Segment) {
        if let (Some(number), Some(_)) = (segment.acknowledgment, self.first) {
            let acknowledged = unwrap(number, self.highest);
            while self.awaited.front().is_some_and(|(end, _)| *end <= acknowledged) {
                if let Some((_, sent)) = self.awaited.pop_front().filter(|(end, _)| *end == acknowledged) {
                    self.to_ack.add(at.saturating_sub(sent));
                }
            }
            self.acknowledged = self.acknowledged.max(Some(acknowledged));
        }
        if let Some((_, echo)) = segment.timestamps {
            // Timestamps before the echoed one are not echoed any more.
            if let Some(place) = self.stamps.iter().position(|(value, _)| *value == echo) {
                let (_, first_seen) = self.stamps[place];
                self.stamps.drain(..=place);
                self.to_echo.add(at.saturating_sub(first_seen));
            }
        }
    }

    /// Returns the bytes that this end has sent, each counted once.
    pub(super) fn moved(&self) -> Bytes {
        Bytes::new(self.first.map_or(0, |first| self.highest - first))
    }

    /// Returns the bytes between the highest that was seen and the highest that was acknowledged.
    fn in_flight(&self) -> u64 {
        self.acknowledged.map_or(0, |acknowledged| self.highest.saturating_sub(acknowledged))
    }

    /// Returns whether the other end has acknowledged anything.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged.is_some()
    }

    /// Begins the next interval.
    pub(super) fn next_interval(&mut self) {
        self.to_ack.next_interval();
        self.to_echo.next_interval();
        self.most_in_flight = self.in_flight();
    }

    /// Returns whether the window's scale is known.
    pub(super) fn knows_scale(&self) -> bool {
        self.scale.is_some()
    }
}

/// Returns the number with these low 32 bits that is nearest to `near`.
fn unwrap(number: u32, near: u64) -> u64 {
    let difference = number.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(i64::from(difference))
}

/// Adds two parts of a round trip, where both are known.
pub(super) fn whole(one: Option<Duration>, other: Option<Duration>) -> Option<Rtt> {
    one.zip(other).map(|(one, other)| Rtt::new(one + other))
}
