//! The segments that one endpoint of a captured connection sends: data, retransmits, and the
//! acknowledgements that cover them.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rtt};

use super::announced_window::AnnouncedWindow;
use super::arrivals::Arrivals;
use super::packet::Segment;
use super::response_times::ResponseTimes;

/// One direction of a connection: the segments that one endpoint sends.
#[derive(Debug, Clone, Default)]
pub(super) struct SentSegments {
    pub(super) numbers: SequenceNumbers,
    /// Bytes of payload, retransmissions included.
    pub(super) payload: u64,
    /// Segments below the highest sequence number: retransmitted or reordered.
    pub(super) retransmits: u64,
    /// What has passed the capture point, and what the peer has reported to have arrived.
    pub(super) passed: Arrivals,
    pub(super) reported: Arrivals,
    /// When data were sent last.
    last_data: Option<Duration>,
    /// What this endpoint can receive.
    pub(super) window: AnnouncedWindow,
    /// When the peer has answered.
    pub(super) times: ResponseTimes,
    /// The maximum of bytes in flight in the current interval.
    pub(super) most_in_flight: u64,
}

/// The sequence numbers of a direction, unwrapped to 64 bits.
#[derive(Debug, Clone, Default)]
pub(super) struct SequenceNumbers {
    first: Option<u64>,
    /// The end of the highest segment.
    highest: u64,
    /// The highest acknowledgement number from the peer.
    acknowledged: Option<u64>,
}

impl SequenceNumbers {
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
}

impl SentSegments {
    /// Adds a segment that this endpoint sent.
    pub(super) fn add(&mut self, at: Duration, segment: &Segment) {
        self.window.add(segment);
        if let Some((value, _)) = segment.options.timestamps {
            self.times.add_stamp(at, value);
        }
        if self.numbers.first.is_none() && (segment.syn || segment.payload > 0) {
            // A SYN occupies one sequence number. The offset of 2^32 keeps earlier numbers from
            // wrapping below zero.
            let start = u64::from(segment.sequence) + u64::from(segment.syn) + (1 << 32);
            (self.numbers.first, self.numbers.highest) = (Some(start), start);
            (self.passed, self.reported) = (Arrivals::at(start), Arrivals::at(start));
        }
        if let Some(first) = self.numbers.first.filter(|_| segment.payload > 0) {
            self.add_data(at, segment, first);
        }
    }

    fn add_data(&mut self, at: Duration, segment: &Segment, first: u64) {
        let length = u64::from(segment.payload);
        let sequence = segment.sequence.wrapping_add(u32::from(segment.syn));
        let start = unwrap(sequence, self.numbers.highest);
        // A keep-alive repeats one byte (RFC 9293, section 3.8.4).
        let keep_alive = length == 1 && start + 1 == self.numbers.highest;
        if start < first || keep_alive {
            return;
        }
        self.payload += length;
        self.last_data = Some(at);
        self.passed.add(start, start + length);
        if start < self.numbers.highest {
            self.retransmits += 1;
            self.times.sent_again(start);
        } else {
            self.times.add_data(at, start + length);
        }
        self.numbers.highest = self.numbers.highest.max(start + length);
        self.most_in_flight = self.most_in_flight.max(self.numbers.in_flight());
    }

    /// Returns the time at `at` since data were sent.
    pub(super) fn data_age(&self, at: Duration) -> Duration {
        self.last_data.map_or(Duration::ZERO, |last| at.saturating_sub(last))
    }

    /// Adds the acknowledgement and the timestamp echo of a segment from the peer.
    pub(super) fn answered(&mut self, at: Duration, segment: &Segment) {
        if let (Some(number), Some(_)) = (segment.acknowledgment, self.numbers.first) {
            let acknowledged = unwrap(number, self.numbers.highest);
            self.times.acknowledge(at, acknowledged, self.passed.has_gap() || self.reported.has_gap());
            self.numbers.acknowledged = self.numbers.acknowledged.max(Some(acknowledged));
            // A packet that was not captured has arrived, too.
            self.passed.add_until(acknowledged);
            self.reported.add_until(acknowledged);
            for (start, end) in segment.options.beyond_gap.iter().flatten() {
                let (start, end) = (unwrap(*start, self.numbers.highest), unwrap(*end, self.numbers.highest));
                if start < end && end <= self.numbers.highest {
                    self.reported.add(start, end);
                }
            }
        }
        if let Some((_, echo)) = segment.options.timestamps {
            self.times.echo(at, echo);
        }
    }

    /// Returns the losses that the packets show: at the sender those that were sent again,
    /// elsewhere those out of order.
    pub(super) fn losses_seen(&self, at_sender: bool) -> u64 {
        if at_sender { self.retransmits } else { self.passed.out_of_order }
    }

    /// Begins the next interval.
    pub(super) fn next_interval(&mut self) {
        self.times.next_interval();
        self.most_in_flight = self.numbers.in_flight();
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
