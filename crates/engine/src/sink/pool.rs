//! The application buffer: fixed-size segments from a bounded pool.
//!
//! Allocated when needed, freed when done, and the only back-pressure between socket and file:
//! when no segment is free, nobody reads the socket, its buffer fills and RWIN closes.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::plan::SegmentPlan;
use longhaul_core::ranges::ByteRange;
use longhaul_core::telemetry::Segments;
use longhaul_core::units::Bytes;
use longhaul_sys::memory::AlignedBuf;

/// A bounded pool of segments; clones share it.
#[derive(Debug, Clone)]
pub struct SegmentPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Of one segment that is taken from now on.
    size: Bytes,
    in_use: usize,
    /// How many may be.
    count: usize,
    /// Memory kept for the next segment, so that a steady flow need not fault it in again.
    spare: Vec<AlignedBuf>,
}

/// Spare segments kept while the flow pauses; more are given back to the kernel.
const SPARE: usize = 4;

impl SegmentPool {
    /// Makes a pool; it holds no memory yet.
    pub fn new(plan: SegmentPlan) -> Self {
        let state = State { size: plan.size, in_use: 0, count: plan.count, spare: Vec::new() };
        let shared = Shared { state: Mutex::new(state), freed: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Lets as many segments be in use as make up `size`; never fewer than before.
    pub fn grow(&self, size: Bytes) {
        let mut state = self.shared.lock();
        let count = usize::try_from(size.get().div_ceil(state.size.get())).unwrap_or(usize::MAX);
        if count > state.count {
            state.count = count;
            drop(state);
            self.shared.freed.notify_all();
        }
    }

    /// Cuts the buffer anew; segments in use stay as they are.
    pub fn cut(&self, plan: SegmentPlan) {
        let mut state = self.shared.lock();
        if state.size != plan.size {
            state.spare.clear();
        }
        (state.size, state.count) = (plan.size, plan.count);
        drop(state);
        self.shared.freed.notify_all();
    }

    /// Takes a segment for the part of `range` that lies in one segment's worth of the file.
    ///
    /// Waits up to `patience` for one to be free; `Ok(None)` where none was.
    ///
    /// # Errors
    /// ENOMEM where the kernel has no memory for it.
    pub fn take(&self, range: ByteRange, patience: Duration) -> io::Result<Option<Segment>> {
        let state = self.shared.lock();
        let full = |state: &mut State| state.in_use >= state.count;
        let waited = self.shared.freed.wait_timeout_while(state, patience, full);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && full(&mut state) {
            return Ok(None);
        }
        let size = state.size;
        let memory = match state.spare.pop() {
            Some(memory) => memory,
            None => AlignedBuf::new(size.as_usize())?,
        };
        state.in_use += 1;
        let base = range.start() & !(size.get() - 1);
        let at = (range.start() - base) as usize;
        let limit = range.end().saturating_sub(base).min(size.get()) as usize;
        Ok(Some(Segment {
            memory: Some(memory),
            base,
            start: at,
            end: at,
            limit,
            pool: Arc::clone(&self.shared),
        }))
    }

    /// Returns how much of the application buffer is in use.
    pub fn usage(&self) -> Segments {
        let state = self.shared.lock();
        Segments { in_use: state.in_use, count: state.count, size: state.size }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of the file on its way: memory aligned as the file is, filled from `start` on.
#[derive(Debug)]
pub struct Segment {
    /// Gone only while dropping.
    memory: Option<AlignedBuf>,
    /// The file offset of the memory's first byte, a multiple of the segment's size.
    base: u64,
    start: usize,
    end: usize,
    limit: usize,
    pool: Arc<Shared>,
}

impl Segment {
    /// Returns the memory that is still to be filled.
    pub fn spare(&mut self) -> &mut [u8] {
        let (end, limit) = (self.end, self.limit);
        self.memory.as_deref_mut().map_or(&mut [], |memory| &mut memory[end..limit])
    }

    /// Accounts for `n` bytes put at the start of [`Self::spare`].
    pub fn fill(&mut self, n: usize) {
        self.end = self.end.saturating_add(n).min(self.limit);
    }

    /// Returns whether nothing more fits.
    pub fn is_full(&self) -> bool {
        self.end == self.limit
    }

    /// Returns the bytes received so far.
    pub fn data(&self) -> &[u8] {
        self.memory.as_deref().map_or(&[], |memory| &memory[self.start..self.end])
    }

    /// Returns where in the file they belong.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.base + self.start as u64, self.base + self.end as u64)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.in_use -= 1;
        let (room, size) = (state.spare.len() < SPARE, state.size.as_usize());
        let unused = match self.memory.take() {
            // One of before the buffer was cut anew is of no use.
            Some(memory) if room && memory.len() == size => {
                state.spare.push(memory);
                None
            }
            unused => unused,
        };
        drop(state);
        self.pool.freed.notify_one();
        // Unmapped outside the lock.
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 10;

    fn pool(count: usize) -> SegmentPool {
        SegmentPool::new(SegmentPlan { size: Bytes::new(SIZE), count })
    }

    fn take(pool: &SegmentPool, range: ByteRange) -> Option<Segment> {
        pool.take(range, Duration::from_millis(10)).unwrap()
    }

    #[test]
    fn is_bounded_and_frees() {
        let pool = pool(2);
        let range = ByteRange::new(0, SIZE);
        let (first, _second) = (take(&pool, range).unwrap(), take(&pool, range).unwrap());
        assert!(take(&pool, range).is_none());
        assert_eq!(pool.usage().bytes(), Bytes::new(2 * SIZE));
        drop(first);
        assert!(take(&pool, range).is_some());
    }

    #[test]
    fn growing_wakes_who_waits_and_never_shrinks() {
        let pool = pool(1);
        let held = take(&pool, ByteRange::new(0, 1));
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| pool.take(ByteRange::new(0, 1), Duration::from_secs(10)).unwrap().is_some());
            std::thread::sleep(Duration::from_millis(20));
            pool.grow(Bytes::new(SIZE + 1));
            assert!(waiter.join().unwrap());
        });
        pool.grow(Bytes::ZERO);
        assert_eq!(pool.usage().count, 2);
        drop(held);
    }

    #[test]
    fn cut_anew_the_old_segments_stay_and_are_not_used_again() {
        let pool = pool(1);
        let held = take(&pool, ByteRange::new(0, SIZE)).unwrap();
        pool.cut(SegmentPlan { size: Bytes::new(2 * SIZE), count: 2 });
        let mut larger = take(&pool, ByteRange::new(0, 8 * SIZE)).unwrap();
        assert_eq!((larger.spare().len() as u64, pool.usage().in_use), (2 * SIZE, 2));
        drop(held);
        let mut next = take(&pool, ByteRange::new(3 * SIZE, 8 * SIZE)).unwrap();
        assert_eq!(next.spare().len() as u64, SIZE);
    }

    #[test]
    fn a_waiting_reader_is_woken() {
        let pool = pool(1);
        let held = take(&pool, ByteRange::new(0, 1));
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| pool.take(ByteRange::new(0, 1), Duration::from_secs(10)).unwrap().is_some());
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn a_segment_never_crosses_its_edge_and_is_aligned_as_the_file() {
        let pool = pool(1);
        let mut segment = take(&pool, ByteRange::new(SIZE + 100, 10 * SIZE)).unwrap();
        assert_eq!(segment.spare().len() as u64, SIZE - 100);
        assert_eq!(segment.spare().as_ptr().align_offset(4096), 4096 - 100);
        segment.spare()[..3].copy_from_slice(b"abc");
        segment.fill(3);
        assert_eq!((segment.data(), segment.range()), (&b"abc"[..], ByteRange::new(SIZE + 100, SIZE + 103)));
    }

    #[test]
    fn a_short_range_limits_the_segment() {
        let pool = pool(1);
        let mut segment = take(&pool, ByteRange::new(5, 9)).unwrap();
        segment.fill(4);
        assert!(segment.is_full() && segment.spare().is_empty());
    }
}
