//! What one worker has leased and not received.

use std::collections::VecDeque;
use std::time::Duration;

use super::steal::Load;
use crate::ranges::ByteRange;
use crate::units::{Bytes, Rate, Rtt};

/// What the other workers know of a worker's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionStatus {
    /// Whether there is a connection.
    pub connected: bool,
    /// Whether the server has answered on it.
    pub answered: bool,
    /// Whether the worker waits for a lease.
    pub waiting: bool,
    /// What it delivered over the last round trip.
    pub rate: Rate,
    /// Its RTT.
    pub rtt: Rtt,
}

/// A worker's leases in the order of its requests; each is shortened as its bytes arrive.
#[derive(Debug)]
pub(super) struct Leases {
    pub(super) status: ConnectionStatus,
    ranges: VecDeque<ByteRange>,
    /// Since when the worker has had leases without a break.
    begun: Duration,
    /// When a byte last arrived, or was first waited for.
    last_data: Duration,
    /// How many workers in a row have stalled on the last lease.
    stalls: u32,
}

impl Leases {
    pub(super) fn new(now: Duration) -> Self {
        let (status, ranges) = (ConnectionStatus::default(), VecDeque::new());
        Self { status, ranges, begun: now, last_data: now, stalls: 0 }
    }

    /// Adds a range on which `stalls` workers in a row have stalled.
    pub(super) fn push(&mut self, range: ByteRange, stalls: u32, now: Duration) {
        if self.ranges.is_empty() {
            self.touch(now);
            (self.begun, self.stalls) = (now, stalls);
        }
        self.stalls = self.stalls.max(stalls);
        self.ranges.push_back(range);
    }

    pub(super) fn touch(&mut self, now: Duration) {
        self.last_data = now;
    }

    pub(super) fn front(&self) -> Option<ByteRange> {
        self.ranges.front().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn outstanding(&self) -> (Bytes, usize) {
        (self.ranges.iter().fold(Bytes::ZERO, |sum, range| sum + range.len()), self.ranges.len())
    }

    pub(super) fn received(&mut self, range: ByteRange, now: Duration) -> Bytes {
        self.touch(now);
        self.stalls = 0;
        let holds = |lease: &ByteRange| (lease.start()..lease.end()).contains(&range.start());
        let Some(at) = self.ranges.iter().position(holds) else { return Bytes::ZERO };
        let lease = self.ranges[at];
        let end = range.end().min(lease.end());
        if lease.start() < range.start() {
            // From the middle: the front part stays to come, and what lies behind is a lease of its
            // own.
            self.ranges[at] = ByteRange::new(lease.start(), range.start());
            if end < lease.end() {
                self.ranges.insert(at + 1, ByteRange::new(end, lease.end()));
            }
        } else {
            self.ranges[at] = ByteRange::new(end, lease.end());
        }
        ByteRange::new(range.start(), end).len()
    }

    pub(super) fn pop(&mut self) -> bool {
        self.ranges.pop_front().is_some()
    }

    /// Returns what is still to come from `offset` on of the lease that holds it.
    pub(super) fn holding(&self, offset: u64) -> Option<ByteRange> {
        let holds = |lease: &&ByteRange| (lease.start()..lease.end()).contains(&offset);
        self.ranges.iter().find(holds).map(|lease| ByteRange::new(offset, lease.end()))
    }

    /// Drops leases that have arrived.
    pub(super) fn drop_received(&mut self) {
        self.ranges.retain(|range| !range.is_empty());
    }

    /// Returns the place of the lease that ends at `end` and is not empty.
    pub(super) fn ending_at(&self, end: u64) -> Option<usize> {
        self.ranges.iter().position(|range| range.end() == end && !range.is_empty())
    }

    /// Drops the lease that ends at `end`; returns its length.
    pub(super) fn confirm(&mut self, end: u64, now: Duration) -> Option<Bytes> {
        let at = self.ending_at(end)?;
        self.touch(now);
        self.stalls = 0;
        self.ranges.remove(at).map(ByteRange::len)
    }

    pub(super) fn clear(&mut self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.drain(..)
    }

    /// Ends the first lease at `end`, where it does not end before; returns what lay behind.
    pub(super) fn shorten(&mut self, end: u64) -> ByteRange {
        let Some(front) = self.ranges.front_mut() else { return ByteRange::new(end, end) };
        let end = end.min(front.end());
        let behind = ByteRange::new(end, front.end());
        *front = ByteRange::new(front.start(), end);
        behind
    }

    pub(super) fn restart(&mut self) -> Option<u64> {
        let front = self.ranges.front_mut()?;
        let reached = front.start();
        *front = ByteRange::new(0, front.end());
        Some(reached)
    }

    pub(super) fn load(&self, now: Duration) -> Load {
        let (left, _) = self.outstanding();
        let (age, silent) = (now.saturating_sub(self.begun), now.saturating_sub(self.last_data));
        Load { left, rate: self.status.rate, rtt: self.status.rtt, age, silent, stalls: self.stalls }
    }

    /// Returns whether the server answers the worker, and the worker has not stalled.
    pub(super) fn is_served(&self, now: Duration) -> bool {
        self.status.answered && (self.is_empty() || !self.load(now).is_stalled())
    }

    /// Returns how long the worker will take at its rate: longest of all where it has stalled, and
    /// no time where its rate is not known yet.
    pub(super) fn time_left(&self, now: Duration) -> Duration {
        let load = self.load(now);
        match load.left {
            Bytes::ZERO => Duration::ZERO,
            _ if load.is_stalled() => Duration::MAX,
            left if load.is_measured() => load.rate.time_for(left),
            _ => Duration::ZERO,
        }
    }

    /// Takes the last `part` of what is to come.
    pub(super) fn take_tail(&mut self, part: Bytes) -> Vec<ByteRange> {
        let (mut left, mut taken) = (part, Vec::new());
        while left > Bytes::ZERO
            && let Some(range) = self.ranges.pop_back()
        {
            let cut = range.end() - left.get().min(range.len().get());
            taken.push(ByteRange::new(cut, range.end()));
            left = left - range.len();
            if cut > range.start() {
                self.ranges.push_back(ByteRange::new(range.start(), cut));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn leases(ranges: &[(u64, u64)]) -> Leases {
        let mut leases = Leases::new(NOW);
        ranges.iter().for_each(|&(start, end)| leases.push(ByteRange::new(start, end), 0, NOW));
        leases
    }

    /// Receives ranges; returns the number of bytes of each that count.
    fn receive(leases: &mut Leases, ranges: &[(u64, u64)]) -> Vec<u64> {
        ranges.iter().map(|&(start, end)| leases.received(ByteRange::new(start, end), NOW).get()).collect()
    }

    #[test]
    fn tail_is_taken_from_the_last_lease_first() {
        let mut three = leases(&[(0, 10), (20, 30), (50, 60)]);
        assert_eq!(three.take_tail(Bytes::new(13)), [ByteRange::new(50, 60), ByteRange::new(27, 30)]);
        assert_eq!(three.outstanding(), (Bytes::new(17), 2));
        assert_eq!(three.take_tail(Bytes::new(99)).len(), 2);
        assert!(three.is_empty());
    }

    #[test]
    fn bytes_count_once_within_the_lease_in_any_order() {
        let mut one = leases(&[(0, 10)]);
        assert_eq!(receive(&mut one, &[(0, 4)]), [4]);
        assert_eq!(one.shorten(6), ByteRange::new(6, 10));
        assert!(one.shorten(8).is_empty(), "it ends before");
        assert_eq!(receive(&mut one, &[(4, 8)]), [2]);
        assert_eq!(one.front(), Some(ByteRange::new(6, 6)));
        assert_eq!((one.pop(), one.pop()), (true, false));
        assert_eq!(receive(&mut one, &[(8, 9)]), [0]);
        let mut one = leases(&[(0, 30)]);
        assert_eq!(receive(&mut one, &[(10, 20), (25, 40)]), [10, 5]);
        assert_eq!(one.outstanding(), (Bytes::new(15), 2));
        assert_eq!(receive(&mut one, &[(10, 12), (0, 10), (20, 25)]), [0, 10, 5], "the first arrives twice");
        assert_eq!(one.outstanding().0, Bytes::ZERO);
    }

    #[test]
    fn what_has_arrived_is_dropped_and_what_has_not_is_found() {
        let mut one = leases(&[(0, 30), (30, 50)]);
        receive(&mut one, &[(10, 20)]);
        assert_eq!(one.holding(5), Some(ByteRange::new(5, 10)));
        assert_eq!((one.holding(10), one.holding(30)), (None, Some(ByteRange::new(30, 50))));
        receive(&mut one, &[(0, 10)]);
        one.drop_received();
        assert_eq!(one.outstanding(), (Bytes::new(30), 2));
        receive(&mut one, &[(20, 30), (30, 50)]);
        one.drop_received();
        assert!(one.is_empty());
    }
}
