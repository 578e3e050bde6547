//! Blocks of a file taken first come, first served, so that no stream is left with a long tail.

use std::time::Duration;

use crate::ranges::ByteRange;
use crate::units::{Bytes, Rate, Rtt};

/// Hands out what is left of a file, from its start, in blocks.
///
/// Several streams get blocks that shrink towards the end, so that they finish together however
/// unequal their rates are. A stream that is alone for good gets everything that is contiguous at
/// once; one that others may join gets blocks of some seconds.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Ranges that no worker leases, sorted and disjoint.
    left: Vec<ByteRange>,
    streams: u64,
    joinable: bool,
    segment: Bytes,
    /// How much of it may be leased for now.
    budget: Bytes,
}

impl Blocks {
    /// The largest block of several streams: larger ones make the tail longer, and win nothing once
    /// requests are pipelined.
    const MAX: Bytes = Bytes::mib(16);
    /// The smallest block: below it the request costs more than it saves.
    const MIN: Bytes = Bytes::mib(1);
    /// Every stream is offered about this many more blocks before the end.
    const BLOCKS_AHEAD: u64 = 4;
    /// What a stream alone takes at once: servers close connections after so many requests (Apache:
    /// 100).
    const ALONE: Rtt = Rtt::new(Duration::from_secs(4));

    /// Plans `gaps` (sorted, disjoint) for `streams` streams, and for others where they are
    /// `joinable`; blocks end on multiples of `segment`.
    pub fn new(gaps: Vec<ByteRange>, streams: usize, joinable: bool, segment: Bytes) -> Self {
        let segment = segment.max(Bytes::new(1));
        Self { left: gaps, streams: streams.max(1) as u64, joinable, segment, budget: Bytes::new(u64::MAX) }
    }

    /// Takes the next block for a stream of this rate; `None` where all is taken that may be.
    pub(super) fn take(&mut self, rate: Rate) -> Option<ByteRange> {
        let gap = *self.left.first()?;
        let room = self.budget;
        if room == Bytes::ZERO {
            return None;
        }
        let end = if self.streams == 1 && !self.joinable { gap.end() } else { self.block_end(gap, rate) };
        let end = end.min(gap.start().saturating_add(room.get()));
        Some(self.take_until(gap, end))
    }

    /// Takes the front of the first gap: at most `most` bytes, and no more than may be taken. It
    /// ends at a segment's end where the gap goes on behind it.
    pub(super) fn take_length(&mut self, most: Bytes) -> Option<ByteRange> {
        let gap = *self.left.first()?;
        let most = most.min(self.budget);
        if most == Bytes::ZERO {
            return None;
        }
        let end = gap.start().saturating_add(most.get());
        let aligned = end / self.segment.get() * self.segment.get();
        // What may be taken is taken to its last byte: the next budget comes once all of it is
        // there.
        let is_cut = end < gap.end() && most < self.budget && aligned > gap.start();
        let end = if is_cut { aligned } else { end.min(gap.end()) };
        Some(self.take_until(gap, end))
    }

    fn take_until(&mut self, gap: ByteRange, end: u64) -> ByteRange {
        if end == gap.end() {
            self.left.remove(0);
        } else {
            self.left[0] = ByteRange::new(end, gap.end());
        }
        let block = ByteRange::new(gap.start(), end);
        self.budget = self.budget - block.len();
        block
    }

    /// Puts back what a stream has not received; it is taken again in file order.
    pub(super) fn put_back(&mut self, range: ByteRange) {
        if !range.is_empty() {
            let at = self.left.partition_point(|r| r.start() < range.start());
            debug_assert!(at == 0 || self.left[at - 1].end() <= range.start(), "{range} is there already");
            debug_assert!(
                self.left.get(at).is_none_or(|next| range.end() <= next.start()),
                "{range} is there already"
            );
            self.left.insert(at, range);
            self.budget += range.len();
        }
    }

    /// Lets `budget` bytes be taken from now on, and no more until the next call.
    pub(super) fn allow(&mut self, budget: Bytes) {
        self.budget = budget;
    }

    /// Returns how much may be taken now.
    pub(super) fn available(&self) -> Bytes {
        self.unleased().min(self.budget)
    }

    /// Returns the range that the next block is taken from.
    pub(super) fn front(&self) -> Option<ByteRange> {
        self.left.first().copied().filter(|_| self.budget > Bytes::ZERO)
    }

    /// Returns how much no stream has taken.
    pub(super) fn unleased(&self) -> Bytes {
        self.left.iter().fold(Bytes::ZERO, |sum, r| sum + r.len())
    }

    /// Plans for this number of streams from now on.
    pub(super) fn plan_for(&mut self, streams: usize) {
        self.streams = streams.max(1) as u64;
    }

    /// Returns each stream's share of what may be taken.
    pub(super) fn share(&self) -> Bytes {
        Bytes::new(self.available().get() / self.streams)
    }

    fn is_bounded(&self) -> bool {
        self.budget < self.unleased()
    }

    fn block_end(&self, gap: ByteRange, rate: Rate) -> u64 {
        let share = self.available().get() / (self.streams * Self::BLOCKS_AHEAD);
        let alone = if self.streams == 1 { rate.bdp(Self::ALONE) } else { Bytes::ZERO };
        // Under a budget every stream gets a part of it.
        let least = if self.is_bounded() { Self::MIN.min(self.share()) } else { Self::MIN };
        // A few bytes for many streams cannot be shared: one stream takes them.
        let size = share.clamp(least.get().max(1), Self::MAX.max(alone).get());
        let segment = self.segment.get();
        let end = gap.start().saturating_add(size).div_ceil(segment).saturating_mul(segment);
        end.min(gap.end())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ranges::RangeSet;

    const SLOW: Rate = Rate::mbit(1);

    fn sizes(mut blocks: Blocks, rate: Rate) -> Vec<Bytes> {
        std::iter::from_fn(|| blocks.take(rate)).map(ByteRange::len).collect()
    }

    #[test]
    fn one_stream_takes_each_gap_whole_and_several_shrinking_blocks() {
        let gaps = vec![ByteRange::new(0, 10), ByteRange::new(50, 1 << 40)];
        let mut blocks = Blocks::new(gaps.clone(), 1, false, Bytes::mib(4));
        let taken: Vec<_> = std::iter::from_fn(|| blocks.take(SLOW)).collect();
        assert_eq!(taken, gaps);
        let blocks = Blocks::new(vec![ByteRange::new(0, 1 << 30)], 4, false, Bytes::mib(1));
        let shrinking = sizes(blocks, Rate::bits_per_sec(u64::MAX));
        assert_eq!((shrinking[0], shrinking.last()), (Bytes::mib(16), Some(&Bytes::mib(1))));
        // One that others may join takes some seconds, and leaves a share.
        let blocks = Blocks::new(vec![ByteRange::new(0, 8 << 30)], 1, true, Bytes::mib(1));
        assert_eq!(sizes(blocks.clone(), SLOW)[0], Bytes::mib(16));
        let fast = sizes(blocks, Rate::bytes_per_sec(256 << 20));
        assert_eq!(fast[0], Bytes::gib(1));
        assert!(fast.len() < 40, "{} requests", fast.len());
    }

    #[test]
    fn no_more_than_is_allowed() {
        let whole = ByteRange::new(0, 1 << 30);
        let mut blocks = Blocks::new(vec![whole], 3, true, Bytes::kib(64));
        blocks.allow(Bytes::new(5_000_000));
        let taken: Vec<_> = std::iter::from_fn(|| blocks.take(SLOW)).collect();
        assert_eq!(taken.iter().map(|block| block.len().get()).sum::<u64>(), 5_000_000);
        assert_eq!(blocks.available(), Bytes::ZERO);
        assert!(taken.len() >= 3, "a part for each stream");
        // What is put back may be taken again.
        blocks.put_back(taken[0]);
        assert_eq!(blocks.available(), taken[0].len());
        blocks.allow(Bytes::new(u64::MAX));
        assert_eq!(blocks.available(), blocks.unleased());
    }

    proptest! {
        #[test]
        fn every_byte_once(size in 1u64..(300 << 20), events in proptest::collection::vec((1usize..200, any::<bool>()), 400), budget in 1u64..(3 << 20)) {
            let whole = ByteRange::new(0, size);
            let mut blocks = Blocks::new(vec![whole], 1, true, Bytes::mib(4));
            let (mut got, mut total, mut events) = (RangeSet::new(), 0, events.into_iter());
            loop {
                let (streams, fail) = events.next().unwrap_or((2, false));
                blocks.plan_for(streams);
                // A chunk ends anywhere.
                blocks.allow(Bytes::new(if streams % 2 == 0 { budget } else { streams as u64 }));
                let Some(block) = blocks.take(SLOW) else { break };
                prop_assert!(!block.is_empty());
                let cut = if fail { block.start() + block.len().get() / 2 } else { block.end() };
                blocks.put_back(ByteRange::new(cut, block.end()));
                got.insert(ByteRange::new(block.start(), cut));
                total += cut - block.start();
            }
            prop_assert!(got.contains(whole) && total == size);
        }
    }
}
