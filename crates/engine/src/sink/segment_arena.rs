//! The memory of segments: chunks of huge pages that stay mapped between uses.
//!
//! A segment is cut from the first chunk that has space for it, which keeps the set of chunks in
//! use small and stable. A chunk that was unused for a while is unmapped, which releases the memory
//! of a past stall.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_sys::chunk::{Chunk, Piece};

/// Chunks in mapping order.
#[derive(Debug)]
pub(super) struct SegmentArena {
    chunks: Vec<Arc<Chunk>>,
    /// The maximum number of chunks in use in the current period, and in the one before.
    needed: [usize; 2],
    /// The start of the current period.
    since: Instant,
}

/// The size of a chunk, unless segments are larger or tiny: two huge pages.
const CHUNK: Bytes = Bytes::mib(4);
/// A chunk that was free for at least one such period is unmapped. Dirty throttling pauses a writer
/// for at most 0.2 s (MAX_PAUSE, mm/page-writeback.c), so the fluctuations of a flow are shorter.
const PERIOD: Duration = Duration::from_secs(1);

impl SegmentArena {
    pub(super) fn new(now: Instant) -> Self {
        Self { chunks: Vec::new(), needed: [0; 2], since: now }
    }

    /// Cuts a segment from the mapped chunks.
    pub(super) fn take(&mut self, size: Bytes) -> Option<Piece> {
        let piece = self.chunks.iter().find_map(|chunk| chunk.lend(size.as_usize()))?;
        self.needed[0] = self.needed[0].max(self.in_use());
        Some(piece)
    }

    /// Maps a chunk with space for a segment of this size, and cuts one from it; the caller must
    /// [add](Self::add) the chunk.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn map(size: Bytes) -> io::Result<(Arc<Chunk>, Piece)> {
        let most = Bytes::new(size.get() * Chunk::BLOCKS as u64);
        let chunk = Chunk::new(CHUNK.clamp(size, most).as_usize())?;
        let piece = chunk.lend(size.as_usize()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok((chunk, piece))
    }

    /// Adds a mapped chunk.
    pub(super) fn add(&mut self, chunk: Arc<Chunk>) {
        self.chunks.push(chunk);
        self.needed[0] = self.needed[0].max(self.in_use());
    }

    /// Returns the unused chunks, for unmapping outside of locks.
    pub(super) fn unneeded(&mut self, now: Instant) -> Vec<Arc<Chunk>> {
        if now.saturating_duration_since(self.since) < PERIOD {
            return Vec::new();
        }
        let surplus = self.chunks.len().saturating_sub(self.needed[0].max(self.needed[1]));
        self.needed = [self.in_use(), self.needed[0]];
        self.since = now;
        self.free_chunks(surplus)
    }

    /// Returns all chunks without a segment in use.
    pub(super) fn clear(&mut self) -> Vec<Arc<Chunk>> {
        self.free_chunks(usize::MAX)
    }

    /// Removes up to `most` free chunks, latest first.
    fn free_chunks(&mut self, most: usize) -> Vec<Arc<Chunk>> {
        let free: Vec<_> =
            (0..self.chunks.len()).rev().filter(|at| self.chunks[*at].is_free()).take(most).collect();
        free.into_iter().map(|at| self.chunks.remove(at)).collect()
    }

    fn in_use(&self) -> usize {
        self.chunks.iter().filter(|chunk| !chunk.is_free()).count()
    }

    /// Returns the mapped bytes.
    pub(super) fn mapped(&self) -> Bytes {
        self.chunks.iter().fold(Bytes::ZERO, |sum, chunk| sum + Bytes::new(chunk.size() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a segment in the way of the memory budget.
    fn take(arena: &mut SegmentArena, size: Bytes) -> Piece {
        arena.take(size).unwrap_or_else(|| {
            let (chunk, piece) = SegmentArena::map(size).unwrap();
            arena.add(chunk);
            piece
        })
    }

    #[test]
    fn memory_is_reused_for_any_segment_size() {
        let mut arena = SegmentArena::new(Instant::now());
        for size in [4096, 256, 1024, 64, 4096].map(Bytes::kib) {
            let held: Vec<_> =
                (0..Bytes::mib(16).get() / size.get()).map(|_| take(&mut arena, size)).collect();
            assert_eq!(arena.mapped(), Bytes::mib(16), "segments of {size}");
            drop(held);
        }
        let one = take(&mut arena, Bytes::mib(4)).as_ptr();
        assert_eq!(take(&mut arena, Bytes::mib(4)).as_ptr(), one);
        let mut arena = SegmentArena::new(Instant::now());
        let tiny = take(&mut arena, Bytes::kib(4));
        assert_eq!((tiny.len(), arena.mapped()), (4096, Bytes::kib(256)));
        let huge = take(&mut arena, Bytes::mib(64));
        assert_eq!((huge.len(), arena.mapped()), (64 << 20, Bytes::kib(256) + Bytes::mib(64)));
    }

    #[test]
    fn unused_memory_is_returned_after_a_period() {
        let start = Instant::now();
        let mut arena = SegmentArena::new(start);
        let many: Vec<_> = (0..100).map(|_| take(&mut arena, Bytes::mib(4))).collect();
        let kept = take(&mut arena, Bytes::kib(64));
        drop(many);
        assert!(arena.unneeded(start + PERIOD / 2).is_empty(), "too early");
        assert!(arena.unneeded(start + PERIOD).is_empty(), "needed in this period");
        // From here on, 16 MiB are in use at a time.
        (0..3).for_each(|_| drop([(); 4].map(|()| take(&mut arena, Bytes::mib(4)))));
        assert!(arena.unneeded(start + PERIOD * 2).is_empty(), "needed in the period before");
        assert!(!arena.unneeded(start + PERIOD * 3).is_empty());
        assert!(arena.mapped() <= Bytes::mib(20), "{}", arena.mapped());
        assert!(arena.clear().len() <= 5 && arena.mapped() == Bytes::mib(4));
        drop(kept);
        assert_eq!(arena.clear().len(), 1);
    }
}
