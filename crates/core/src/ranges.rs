//! Byte ranges and sets of byte ranges, such as the received or committed ranges of a file.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::units::Bytes;

/// A half-open range of file offsets, `start..end`; empty if both are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// Creates the range `start..end`; an `end` before `start` gives an empty range at `start`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// Creates the range of `len` bytes from `start`.
    pub const fn with_len(start: u64, len: Bytes) -> Self {
        Self { start, end: start.saturating_add(len.get()) }
    }

    /// Returns the offset of the first byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns the offset after the last byte.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Returns the number of bytes.
    pub const fn len(self) -> Bytes {
        Bytes::new(self.end - self.start)
    }

    /// Returns whether the range contains no byte.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns whether the ranges have a byte in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// Splits the range into the part before the first multiple of `align`, the aligned middle, and
    /// the rest.
    ///
    /// Direct I/O is possible only for the middle. `align` must be a power of two.
    pub fn split_aligned(self, align: Bytes) -> [Self; 3] {
        let mask = align.get() - 1;
        let first = self.start.saturating_add(mask) & !mask;
        let last = self.end & !mask;
        if first >= last {
            return [self, Self::new(self.end, self.end), Self::new(self.end, self.end)];
        }
        [Self::new(self.start, first), Self::new(first, last), Self::new(last, self.end)]
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}..{}", self.start, self.end)
    }
}

/// A set of byte offsets, stored as sorted ranges that neither overlap nor touch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>")]
pub struct RangeSet {
    ranges: Vec<ByteRange>,
}

impl RangeSet {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Adds a range, merging it with the ranges that it overlaps or touches.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        let merged = self.ranges[first..last]
            .iter()
            .fold(range, |a, b| ByteRange { start: a.start.min(b.start), end: a.end.max(b.end) });
        self.ranges.splice(first..last, [merged]);
    }

    /// Removes every byte of a range, splitting ranges that extend beyond it.
    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        let last = self.ranges.partition_point(|r| r.start < range.end).max(first);
        let Some((left, right)) = self.ranges[first..last].first().zip(self.ranges[first..last].last())
        else {
            return;
        };
        let rest = [ByteRange::new(left.start, range.start), ByteRange::new(range.end, right.end)];
        self.ranges.splice(first..last, rest.into_iter().filter(|r| !r.is_empty()));
    }

    /// Returns the offset after the set's last byte; 0 if the set is empty.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |last| last.end)
    }

    /// Returns the ranges, sorted.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.iter().copied()
    }

    /// Returns the number of bytes in the set.
    pub fn total(&self) -> Bytes {
        self.iter().fold(Bytes::ZERO, |sum, r| sum + r.len())
    }

    /// Returns whether every byte of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        let next = self.ranges.partition_point(|r| r.end < range.end);
        range.is_empty() || self.ranges.get(next).is_some_and(|r| r.start <= range.start)
    }

    /// Returns the parts of `whole` that are not in the set, sorted.
    pub fn gaps(&self, whole: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut from = whole.start;
        let first = self.ranges.partition_point(|r| r.end <= whole.start);
        for r in self.ranges[first..].iter().take_while(|r| r.start < whole.end) {
            if r.start > from {
                gaps.push(ByteRange::new(from, r.start));
            }
            from = r.end;
        }
        if from < whole.end {
            gaps.push(ByteRange::new(from, whole.end));
        }
        gaps
    }
}

/// Lists the first ranges, and the number of the others.
impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let shown = self.iter().take(SHOWN).map(|range| format!("{}..{}", range.start, range.end));
        write!(f, "bytes {}", shown.collect::<Vec<_>>().join(", "))?;
        match self.ranges.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more ranges"),
        }
    }
}

impl Serialize for RangeSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|range| (range.start, range.end)))
    }
}

impl TryFrom<Vec<(u64, u64)>> for RangeSet {
    type Error = String;

    fn try_from(pairs: Vec<(u64, u64)>) -> Result<Self, String> {
        let range = |(start, end)| match start < end {
            true => Ok(ByteRange { start, end }),
            false => Err(format!("{start}..{end} is no range of bytes")),
        };
        pairs.into_iter().map(range).collect()
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|r| set.insert(r));
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range() -> impl Strategy<Value = ByteRange> {
        (0u64..200, 0u64..40).prop_map(|(start, len)| ByteRange::new(start, start + len))
    }

    proptest! {
        /// The set agrees with a sorted list of offsets; its ranges are sorted, separate and not
        /// empty.
        #[test]
        fn insertion_and_removal_agree_with_a_plain_set(
            changes in proptest::collection::vec((range(), proptest::bool::weighted(0.75)), 0..40),
        ) {
            let (mut set, mut plain) = (RangeSet::new(), std::collections::BTreeSet::new());
            for (range, inserts) in changes {
                let offsets = range.start()..range.end();
                if inserts {
                    set.insert(range);
                    plain.extend(offsets);
                } else {
                    set.remove(range);
                    plain.retain(|offset| !offsets.contains(offset));
                }
                prop_assert!(set.iter().flat_map(|r| r.start()..r.end()).eq(plain.iter().copied()), "{}", set);
                prop_assert_eq!(set.total().get(), plain.len() as u64);
                prop_assert_eq!(set.end(), plain.last().map_or(0, |last| last + 1));
                prop_assert!(set.ranges.windows(2).all(|w| w[0].end < w[1].start));
                prop_assert!(set.iter().all(|r| !r.is_empty()));
            }
        }

        /// The ranges of the set and its gaps make up the whole, without overlap.
        #[test]
        fn gaps_complete_the_set(ranges in proptest::collection::vec(range(), 0..30), whole in range()) {
            let set: RangeSet = ranges.into_iter().collect();
            let gaps = set.gaps(whole);
            for offset in whole.start()..whole.end() {
                let one = ByteRange::new(offset, offset + 1);
                let missing = gaps.iter().any(|g| g.start() <= offset && offset < g.end());
                prop_assert_ne!(set.contains(one), missing);
            }
            let mut full = set;
            gaps.into_iter().for_each(|g| full.insert(g));
            prop_assert!(full.contains(whole));
        }

        /// The three parts are consecutive and the middle is aligned.
        #[test]
        fn split_aligned_keeps_every_byte(r in range(), shift in 0u32..6) {
            let align = 1u64 << shift;
            let [head, mid, tail] = r.split_aligned(Bytes::new(align));
            prop_assert_eq!(head.start(), r.start());
            prop_assert_eq!((head.end(), mid.end(), tail.end()), (mid.start(), tail.start(), r.end()));
            prop_assert!(mid.is_empty() || (mid.start() % align == 0 && mid.end() % align == 0));
            prop_assert!(mid.is_empty() || (head.len().get() < align && tail.len().get() < align));
        }
    }

    #[test]
    fn display_lists_the_first_ranges_and_a_reversed_one_is_empty() {
        let set = |count: u64| (0..count).map(|n| ByteRange::new(10 * n, 10 * n + 1)).collect::<RangeSet>();
        assert_eq!(set(2).to_string(), "bytes 0..1, 10..11");
        assert!(set(11).to_string().ends_with("70..71 and 3 more ranges"), "{}", set(11));
        assert!(ByteRange::new(7, 3).is_empty());
    }
}
