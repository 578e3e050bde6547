//! Blocks of a file handed out first come, first served, so that no stream is left with a long tail.

use crate::ranges::ByteRange;
use crate::units::Bytes;

/// Hands out what is left of a file, from its start, in blocks.
///
/// One stream gets everything that is contiguous at once. Several get blocks that shrink towards
/// the end, so that they finish together however unequal their rates are.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// What nobody has claimed, sorted and disjoint.
    left: Vec<ByteRange>,
    streams: u64,
    segment: Bytes,
}

impl Blocks {
    /// The largest block: larger ones make the tail longer, and win nothing once requests are pipelined.
    const LARGEST: Bytes = Bytes::mib(16);
    /// The smallest block: below it the request costs more than it saves.
    const SMALLEST: Bytes = Bytes::mib(1);
    /// Every stream is offered about this many more blocks before the end.
    const BLOCKS_AHEAD: u64 = 4;

    /// Plans `gaps` (sorted, disjoint) for `streams` streams; blocks end on multiples of `segment`.
    pub fn new(gaps: Vec<ByteRange>, streams: usize, segment: Bytes) -> Self {
        Self { left: gaps, streams: streams.max(1) as u64, segment: segment.max(Bytes::new(1)) }
    }

    /// Claims the next block; `None` where all is claimed.
    pub fn claim(&mut self) -> Option<ByteRange> {
        let gap = *self.left.first()?;
        let end = if self.streams == 1 { gap.end() } else { self.block_end(gap) };
        if end == gap.end() {
            self.left.remove(0);
        } else {
            self.left[0] = ByteRange::new(end, gap.end());
        }
        Some(ByteRange::new(gap.start(), end))
    }

    /// Takes back what a failed stream has not received; it is handed out again in file order.
    pub fn give_back(&mut self, range: ByteRange) {
        if !range.is_empty() {
            let at = self.left.partition_point(|r| r.start() < range.start());
            self.left.insert(at, range);
        }
    }

    /// Returns how much nobody has claimed.
    pub fn unclaimed(&self) -> Bytes {
        self.left.iter().fold(Bytes::ZERO, |sum, r| sum + r.len())
    }

    /// Returns how many streams the blocks are planned for.
    pub const fn streams(&self) -> u64 {
        self.streams
    }

    fn block_end(&self, gap: ByteRange) -> u64 {
        let share = self.unclaimed().get() / (self.streams * Self::BLOCKS_AHEAD);
        let size = share.clamp(Self::SMALLEST.get(), Self::LARGEST.get());
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

    #[test]
    fn one_stream_takes_each_gap_whole() {
        let gaps = vec![ByteRange::new(0, 10), ByteRange::new(50, 1 << 40)];
        let mut blocks = Blocks::new(gaps.clone(), 1, Bytes::mib(4));
        assert_eq!([blocks.claim(), blocks.claim(), blocks.claim()], [Some(gaps[0]), Some(gaps[1]), None]);
    }

    #[test]
    fn blocks_shrink_towards_the_end() {
        let mut blocks = Blocks::new(vec![ByteRange::new(0, 1 << 30)], 4, Bytes::mib(1));
        let sizes: Vec<_> = std::iter::from_fn(|| blocks.claim()).map(|b| b.len()).collect();
        assert_eq!(sizes.first(), Some(&Bytes::mib(16)));
        assert_eq!(sizes.last(), Some(&Bytes::mib(1)));
    }

    proptest! {
        /// Whatever is claimed and given back, every byte is handed out, and none twice.
        #[test]
        fn every_byte_once(size in 1u64..(300 << 20), streams in 1usize..20, failures in proptest::collection::vec(any::<bool>(), 400)) {
            let whole = ByteRange::new(0, size);
            let mut blocks = Blocks::new(vec![whole], streams, Bytes::mib(4));
            let mut got = RangeSet::new();
            let mut total = 0;
            let mut fail = failures.into_iter();
            while let Some(block) = blocks.claim() {
                let cut = if fail.next().unwrap_or(false) { block.start() + block.len().get() / 2 } else { block.end() };
                blocks.give_back(ByteRange::new(cut, block.end()));
                got.insert(ByteRange::new(block.start(), cut));
                total += cut - block.start();
            }
            prop_assert!(got.contains(whole));
            prop_assert_eq!(total, size);
        }
    }
}
