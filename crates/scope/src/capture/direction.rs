//! One direction of a captured connection: its data segments and the acknowledgements that cover them.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rtt};

use super::arrivals::Arrivals;
use super::packet::Segment;

/// Bound for unacknowledged segments and for unechoed timestamps. A fast path has more in flight within one round trip; a
/// subset of samples suffices.
const MOST_AWAITED: usize = 4096;

/// One direction of a connection: the segments that one endpoint sends.
#[derive(Debug, Clone, Default)]
pub(super) struct Direction {
    /// The first sequence number and the end of the highest segment, unwrapped to 64 bits.
    first: Option<u64>,
    highest: u64,
    /// The highest acknowledgement number from the peer, unwrapped to 64 bits.
    acknowledged: Option<u64>,
    /// Bytes of payload, retransmissions included.
    pub(super) payload: u64,
    /// Segments below the highest sequence number: retransmitted or reordered.
    pub(super) lost: u64,
    /// What has passed the capture point, and what the peer has reported to have arrived.
    pub(super) passed: Arrivals,
    pub(super) reported: Arrivals,
    /// When data were sent last.
    last_data: Option<Duration>,
    /// Window scale shift that this endpoint announced; `None` if its SYN was not captured.
    scale: Option<u8>,
    /// Whether an endpoint's SYN lacks the option: then no window is scaled (RFC 7323, section 1.3).
    pub(super) unscaled: bool,
    /// The last and the largest window that this endpoint announced.
    pub(super) window: Option<Bytes>,
    pub(super) largest_window: Bytes,
    /// End and capture time of each unacknowledged data segment.
    awaited: VecDeque<(u64, Duration)>,
    /// Value and first capture time of each unechoed timestamp of this endpoint.
    stamps: VecDeque<(u32, Duration)>,
    /// The minimum time from data to acknowledgement.
    pub(super) to_ack: MinDuration,
    /// The minimum time from a timestamp of this endpoint to its echo.
    pub(super) to_echo: MinDuration,
    /// The maximum of bytes in flight in the current interval.
    pub(super) most_in_flight: u64,
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

impl Direction {
    /// Adds a segment that this endpoint sent.
    pub(super) fn sent(&mut self, at: Duration, segment: &Segment) {
        if segment.syn {
            self.scale = Some(segment.scale.filter(|_| !self.unscaled).unwrap_or(0));
        }
        // The window field of a SYN is never scaled (RFC 7323, section 2.2).
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
            // A SYN occupies one sequence number. The offset of 2^32 keeps earlier numbers from wrapping below zero.
            let start = u64::from(segment.sequence) + u64::from(segment.syn) + (1 << 32);
            (self.first, self.highest) = (Some(start), start);
            (self.passed, self.reported) = (Arrivals::at(start), Arrivals::at(start));
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
        self.last_data = Some(at);
        self.passed.add(start, start + length);
        if start < self.highest {
            self.lost += 1;
            // An acknowledgement of a retransmitted segment is no RTT sample (Karn's algorithm).
            self.awaited.retain(|(end, _)| *end <= start);
        } else if self.awaited.len() < MOST_AWAITED {
            self.awaited.push_back((start + length, at));
        }
        self.highest = self.highest.max(start + length);
        self.most_in_flight = self.most_in_flight.max(self.in_flight());
    }

    /// Notes that an endpoint has not offered window scaling.
    pub(super) fn refuse_scale(&mut self) {
        (self.unscaled, self.scale) = (true, Some(0));
    }

    /// Returns the time at `at` since data were sent.
    pub(super) fn data_age(&self, at: Duration) -> Duration {
        self.last_data.map_or(Duration::ZERO, |last| at.saturating_sub(last))
    }

    /// Adds the acknowledgement and the timestamp echo of a segment from the peer.
    pub(super) fn answered(&mut self, at: Duration, segment: &Segment) {
        if let (Some(number), Some(_)) = (segment.acknowledgment, self.first) {
            let acknowledged = unwrap(number, self.highest);
            // What arrived beyond a gap is acknowledged when that is filled: no RTT sample.
            let had_gap = self.passed.has_gap() || self.reported.has_gap();
            while self.awaited.front().is_some_and(|(end, _)| *end <= acknowledged) {
                if let Some((_, sent)) =
                    self.awaited.pop_front().filter(|(end, _)| *end == acknowledged && !had_gap)
                {
                    self.to_ack.add(at.saturating_sub(sent));
                }
            }
            self.acknowledged = self.acknowledged.max(Some(acknowledged));
            // A packet that was not captured has arrived, too.
            self.passed.add_until(acknowledged);
            self.reported.add_until(acknowledged);
            for (start, end) in segment.beyond_gap.iter().flatten() {
                let (start, end) = (unwrap(*start, self.highest), unwrap(*end, self.highest));
                if start < end && end <= self.highest {
                    self.reported.add(start, end);
                }
            }
        }
        if let Some((_, echo)) = segment.timestamps {
            // Earlier timestamps are never echoed after this one.
            if let Some(place) = self.stamps.iter().position(|(value, _)| *value == echo) {
                let (_, first_seen) = self.stamps[place];
                self.stamps.drain(..=place);
                self.to_echo.add(at.saturating_sub(first_seen));
            }
        }
    }

    /// Returns the bytes that this endpoint has sent, without retransmissions.
    pub(super) fn moved(&self) -> Bytes {
        Bytes::new(self.first.map_or(0, |first| self.highest - first))
    }

    /// Returns the bytes between the highest sequence number sent and the highest acknowledged.
    fn in_flight(&self) -> u64 {
        self.acknowledged.map_or(0, |acknowledged| self.highest.saturating_sub(acknowledged))
    }

    /// Returns whether the peer has acknowledged anything.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged.is_some()
    }

    /// Returns the losses that the packets show: at the sender those that were sent again, elsewhere those out of order.
    pub(super) fn losses_seen(&self, at_sender: bool) -> u64 {
        if at_sender { self.lost } else { self.passed.out_of_order }
    }

    /// Forgets the times of what is not answered yet.
    pub(super) fn forget_times(&mut self) {
        self.awaited.clear();
        self.stamps.clear();
    }

    /// Begins the next interval.
    pub(super) fn next_interval(&mut self) {
        self.to_ack.next_interval();
        self.to_echo.next_interval();
        self.most_in_flight = self.in_flight();
    }

    /// Returns whether this endpoint's window scale is known.
    pub(super) fn has_scale(&self) -> bool {
        self.scale.is_some()
    }
}

/// Returns the 64-bit number nearest to `near` whose low 32 bits are `number`.
fn unwrap(number: u32, near: u64) -> u64 {
    let difference = number.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(i64::from(difference))
}

/// Adds the two halves of a round trip; `None` unless both are known.
pub(super) fn add_halves(one: Option<Duration>, other: Option<Duration>) -> Option<Rtt> {
    one.zip(other).map(|(one, other)| Rtt::new(one + other))
}
