//! Sorts the packets of a capture into connections, by the addresses of both ends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Keep;
use super::flow::{CapturedConnection, Flow};
use super::packet::{Link, Segment};

/// Maximum of tracked connections: each takes some tens of kilobytes.
const MAX_CONNECTIONS: usize = 10_000;

/// The connections of a capture while it is read.
pub(super) struct FlowTable {
    keep: Keep,
    by_ends: HashMap<(SocketAddr, SocketAddr), CapturedConnection>,
    /// Packets read.
    pub(super) packets: u64,
    /// Packets without a segment of TCP.
    pub(super) others: u64,
    left_out: bool,
    clock: CaptureClock,
    began: Option<Duration>,
}

impl FlowTable {
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            keep,
            by_ends: HashMap::new(),
            packets: 0,
            others: 0,
            left_out: false,
            clock: CaptureClock::default(),
            began: None,
        }
    }

    /// Adds a packet to its connection.
    pub(super) fn add(&mut self, at: Duration, link: Link, data: &[u8], wire_length: usize) {
        self.packets += 1;
        let Some(segment) = Segment::parse(link, data, wire_length) else {
            self.others += 1;
            return;
        };
        let at = self.clock.time(at);
        let began = *self.began.get_or_insert(at);
        let ends = (segment.from.min(segment.to), segment.from.max(segment.to));
        if !self.by_ends.contains_key(&ends) && self.by_ends.len() == MAX_CONNECTIONS {
            self.left_out = true;
            return;
        }
        let connection =
            self.by_ends.entry(ends).or_insert_with(|| CapturedConnection::new(&segment, at, self.keep));
        // Packets of several interfaces may be stored out of order; a connection's time never goes
        // back.
        connection.add(at.max(began), &segment);
    }

    /// Returns the connections with data, the largest first, and what is missing from them, in a
    /// phrase.
    pub(super) fn end(self) -> (Vec<Flow>, Option<String>) {
        let left_out = self
            .left_out
            .then(|| format!("more than {MAX_CONNECTIONS} connections; the others were left out"));
        let leaps = self.clock.leaps.then(|| "its clock leaps: the time of a leap counts as zero".to_owned());
        let mut flows: Vec<Flow> = self.by_ends.into_values().filter_map(CapturedConnection::end).collect();
        flows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then((a.from, a.to).cmp(&(b.from, b.to))));
        (flows, left_out.or(leaps))
    }
}

/// Packets of several interfaces, or cores, are stored out of order by this much at most.
const MAX_DISORDER: Duration = Duration::from_secs(1);
/// No packet for longer is a leap of the clock.
const MAX_PAUSE: Duration = Duration::from_secs(86_400);

/// Maps the timestamps of packets to times that do not leap.
#[derive(Debug, Default)]
struct CaptureClock {
    /// The latest timestamp, and its time.
    latest: Option<(Duration, Duration)>,
    /// Whether the clock was set, or a timestamp is damaged.
    leaps: bool,
}

impl CaptureClock {
    /// Returns the time of a packet.
    fn time(&mut self, stamp: Duration) -> Duration {
        let (last, now) = self.latest.unwrap_or((stamp, stamp));
        let back = last.saturating_sub(stamp);
        if back > Duration::ZERO && back <= MAX_DISORDER {
            return now.saturating_sub(back);
        }
        let step = stamp.saturating_sub(last);
        let is_leap = back > Duration::ZERO || step > MAX_PAUSE;
        self.leaps |= is_leap;
        let time = if is_leap { now } else { now + step };
        self.latest = Some((stamp, time));
        time
    }
}
