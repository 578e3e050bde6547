//! The BLAKE3 digest of a file whose ranges are written in any order.
//!
//! BLAKE3 is a tree hash. The chaining value of an aligned block depends only on the block's bytes
//! and position (section 2.1 of the BLAKE3 paper). Each range is hashed while it is in memory; the
//! chaining values of siblings are merged.

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use parking_lot::Mutex;

/// The smallest block whose chaining value is kept, except at the end of the file. It bounds the
/// memory for ranges of any length.
pub(crate) const MIN_BLOCK: u64 = 64 << 10;

/// The chaining values of the ranges hashed so far.
#[derive(Debug)]
pub struct TreeDigest {
    size: u64,
    /// Disjoint subtrees of the file's tree, keyed by start offset. No entry is the whole tree: the
    /// root is finalised in another way.
    subtrees: Mutex<BTreeMap<u64, Subtree>>,
}

#[derive(Debug, Clone, Copy)]
struct Subtree {
    length: u64,
    value: ChainingValue,
}

impl TreeDigest {
    /// Creates the digest of a file of `size` bytes; `None` for a file of at most 64 KiB, which is
    /// fast to read again.
    pub fn new(size: Bytes) -> Option<Self> {
        (size.get() > MIN_BLOCK).then(|| Self { size: size.get(), subtrees: Mutex::default() })
    }

    /// Returns the size of the file.
    pub fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }

    /// Hashes `bytes` at offset `start`, and replaces earlier hashes of that range.
    pub fn add(&self, start: u64, bytes: &[u8]) {
        let range = ByteRange::with_len(start, Bytes::new(bytes.len() as u64));
        let hash = |block: ByteRange| {
            let offset = (block.start() - start) as usize;
            let mut hasher = Hasher::new();
            hasher.set_input_offset(block.start());
            hasher.update(&bytes[offset..offset + block.len().as_usize()]);
            (block, hasher.finalize_non_root())
        };
        // Outside the lock: several writers hash at once.
        let hashed: Vec<_> = blocks(range, self.size).into_iter().map(hash).collect();
        let mut subtrees = self.subtrees.lock();
        remove(&mut subtrees, range);
        for (block, value) in hashed {
            insert(&mut subtrees, self.size, block.start(), Subtree { length: block.len().get(), value });
        }
    }

    /// Hashes `bytes` at offset `start` where they are [`missing`](Self::missing); the file must
    /// not have changed.
    pub(crate) fn add_missing(&self, start: u64, bytes: &[u8]) {
        let end = start + bytes.len() as u64;
        for gap in self.missing() {
            let (from, to) = (gap.start().max(start), gap.end().min(end));
            if from < to {
                self.add(from, &bytes[(from - start) as usize..(to - start) as usize]);
            }
        }
    }

    /// Drops the hashes of `range`.
    pub fn forget(&self, range: ByteRange) {
        remove(&mut self.subtrees.lock(), range);
    }

    /// Returns the ranges that remain to be added, in ascending order. A range that was added in
    /// pieces smaller than a block is included.
    pub fn missing(&self) -> Vec<ByteRange> {
        let subtrees = self.subtrees.lock();
        let mut at = 0;
        let mut gaps = Vec::new();
        for (&start, subtree) in subtrees.iter() {
            gaps.push(ByteRange::new(at, start));
            at = start + subtree.length;
        }
        gaps.push(ByteRange::new(at, self.size));
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// Returns a range of at most `most` bytes that remains to be added and is completely
    /// `written`; `most` is a multiple of 64 KiB.
    ///
    /// Excludes blocks that are not completely written.
    pub(crate) fn missing_in(&self, written: &RangeSet, most: Bytes) -> Option<ByteRange> {
        let of = |gap: ByteRange| {
            let ends = |range: ByteRange| range.end().min(gap.end());
            let parts =
                written.iter().map(move |range| ByteRange::new(range.start().max(gap.start()), ends(range)));
            parts
                .filter_map(|part| {
                    let start = part.start().next_multiple_of(MIN_BLOCK);
                    let end =
                        if part.end() == self.size { self.size } else { part.end() / MIN_BLOCK * MIN_BLOCK };
                    let end = end.min((start + 1).next_multiple_of(most.get()));
                    (start < end).then(|| ByteRange::new(start, end))
                })
                .next()
        };
        self.missing().into_iter().find_map(of)
    }

    /// Returns the digest; `None` while a range is [`missing`](Self::missing).
    pub fn root(&self) -> Option<blake3::Hash> {
        let subtrees = self.subtrees.lock();
        let mut all = subtrees.values();
        match (all.next(), all.next(), all.next()) {
            (Some(left), Some(right), None) if left.length + right.length == self.size => {
                Some(merge_subtrees_root(&left.value, &right.value, Mode::Hash))
            }
            _ => None,
        }
    }
}

/// Returns the largest blocks within a range of a file of `size` bytes that are subtrees of the
/// file's tree, except the whole tree.
fn blocks(part: ByteRange, size: u64) -> Vec<ByteRange> {
    let mut blocks = Vec::new();
    let mut at = part.start().next_multiple_of(MIN_BLOCK);
    while at < part.end() {
        let left = part.end() - at;
        let aligned = lowest_bit(at);
        let length = if part.end() == size && at > 0 && left <= aligned {
            left
        } else {
            // Smaller than the file, even if the file's size is a power of two.
            aligned.min(1 << left.min(size - 1).ilog2())
        };
        if length < MIN_BLOCK && at + length < size {
            break;
        }
        blocks.push(ByteRange::new(at, at + length));
        at += length;
    }
    blocks
}

/// Returns the size of the largest subtree that may start at `at`.
fn lowest_bit(at: u64) -> u64 {
    if at == 0 { 1 << 63 } else { 1 << at.trailing_zeros() }
}

/// Removes every subtree that overlaps `range`.
fn remove(subtrees: &mut BTreeMap<u64, Subtree>, range: ByteRange) {
    let before = subtrees.range(..range.start()).next_back();
    let reaches = before.filter(|(start, subtree)| *start + subtree.length > range.start());
    let first = reaches.map_or(range.start(), |(&start, _)| start);
    let inside: Vec<u64> = subtrees.range(first..range.end().max(first)).map(|(&start, _)| start).collect();
    for start in inside {
        subtrees.remove(&start);
    }
}

/// Adds a subtree; merges siblings up to the children of the root.
fn insert(subtrees: &mut BTreeMap<u64, Subtree>, size: u64, mut start: u64, mut subtree: Subtree) {
    loop {
        let end = start + subtree.length;
        let is_right = start > 0 && (subtree.length == lowest_bit(start) || end == size);
        let sibling = if is_right { start - lowest_bit(start) } else { end };
        let completes = |other: &&Subtree| {
            let (left, right) =
                if is_right { (other.length, subtree.length) } else { (subtree.length, other.length) };
            let (parent, parent_end) = (start.min(sibling), start.min(sibling) + left + right);
            let ends_alike = right == left || parent_end == size;
            ends_alike && parent + left == start.max(sibling) && left + right < size
        };
        let Some(other) = subtrees.get(&sibling).filter(completes).copied() else {
            subtrees.insert(start, subtree);
            return;
        };
        subtrees.remove(&sibling);
        let (left, right) = if is_right { (other, subtree) } else { (subtree, other) };
        start = start.min(sibling);
        subtree = Subtree {
            length: left.length + right.length,
            value: merge_subtrees_non_root(&left.value, &right.value, Mode::Hash),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Adds a range of `bytes`, which are the whole file.
    fn add(tree: &TreeDigest, bytes: &[u8], range: ByteRange) {
        tree.add(range.start(), &bytes[range.start() as usize..range.end() as usize]);
    }

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// Adds the ranges between `cuts` in the order given by `order`, then the missing ranges.
    fn digest(bytes: &[u8], cuts: &[usize], order: impl Fn(usize) -> usize) -> blake3::Hash {
        let tree = TreeDigest::new(Bytes::new(bytes.len() as u64)).unwrap();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % bytes.len()).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let mut parts: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        parts.sort_by_key(|part| order(part.start));
        for part in parts {
            tree.add(part.start as u64, &bytes[part]);
        }
        for gap in tree.missing() {
            assert_eq!(tree.root(), None);
            add(&tree, bytes, gap);
        }
        tree.root().unwrap()
    }

    #[test]
    fn digest_of_a_file_in_one_part() {
        for size in [65_537, 1 << 17, 100_000, 1 << 20, (1 << 20) + 1, (3 << 20) - 1, 5 << 20] {
            let bytes = content(size);
            assert_eq!(digest(&bytes, &[], |at| at), blake3::hash(&bytes), "{size}");
        }
        assert!(TreeDigest::new(Bytes::kib(64)).is_none());
    }

    #[test]
    fn in_order_writes_keep_few_subtrees_and_repeated_bytes_are_not_hashed_again() {
        let bytes = content(8 << 20);
        let tree = TreeDigest::new(Bytes::new(1 << 40)).unwrap();
        for round in 0..64 {
            tree.add(round * (8 << 20), &bytes);
        }
        assert_eq!(tree.subtrees.lock().len(), 1);
        assert_eq!(tree.missing(), [ByteRange::new(512 << 20, 1 << 40)]);
        let tree = TreeDigest::new(Bytes::mib(16)).unwrap();
        tree.add_missing(0, &bytes);
        // This range overlaps a merged subtree, which stays.
        tree.add_missing(7 << 20, &[&bytes[7 << 20..], &bytes[..1 << 20]].concat());
        assert_eq!(tree.missing(), [ByteRange::new(9 << 20, 16 << 20)]);
        tree.add_missing(9 << 20, &bytes[1 << 20..]);
        tree.add_missing(0, &bytes);
        let missing = tree.missing();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(tree.root(), Some(blake3::hash(&bytes.repeat(2))));
    }

    #[test]
    fn later_bytes_replace_earlier_ones() {
        let (bytes, wrong) = (content(1 << 20), vec![7; 300_000]);
        let tree = TreeDigest::new(Bytes::mib(1)).unwrap();
        tree.add(0, &bytes);
        tree.add(200_000, &wrong);
        assert_eq!(tree.root(), None);
        tree.forget(ByteRange::new(200_000, 500_000));
        let gaps = tree.missing();
        assert!(gaps.iter().all(|gap| gap.start() <= 200_000 && gap.end() >= 500_000), "{gaps:?}");
        gaps.into_iter().for_each(|gap| add(&tree, &bytes, gap));
        assert_eq!(tree.root(), Some(blake3::hash(&bytes)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Written blocks are added one by one; incomplete blocks are left out.
        #[test]
        fn written_blocks_are_added(size in 65_537u64..3_000_000, written: [(u64, u64); 4]) {
            let bytes = content(size as usize);
            let tree = TreeDigest::new(Bytes::new(size)).unwrap();
            let range = |(start, end): (u64, u64)| ByteRange::new(start % size, end % (size + 1));
            let written: RangeSet = written.into_iter().map(range).collect();
            let mut parts = 0;
            while let Some(part) = tree.missing_in(&written, Bytes::mib(1)) {
                prop_assert!(written.contains(part) && part.len() <= Bytes::mib(1), "{part}");
                add(&tree, &bytes, part);
                parts += 1;
                prop_assert!(parts <= 50);
            }
            tree.missing().into_iter().for_each(|gap| add(&tree, &bytes, gap));
            prop_assert_eq!(tree.root(), Some(blake3::hash(&bytes)));
        }

        #[test]
        fn digest_of_parts_in_any_order(size in 65_537usize..3_000_000, cuts: [usize; 9], key: usize) {
            let bytes = content(size);
            prop_assert_eq!(digest(&bytes, &cuts, |at| at.wrapping_mul(key | 1)), blake3::hash(&bytes));
        }
    }
}
