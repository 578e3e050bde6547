//! The application buffer of one transfer: segments of its share of the memory budget.
//!
//! Segments are the only back-pressure between socket and file: if no segment is free, no thread
//! reads the socket, its buffer fills and the receive window closes.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::ranges::ByteRange;
use longhaul_core::telemetry::Segments;
use longhaul_core::tune::app_buffer::{AppBufferTuner, WriterStalls};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::chunk::Piece;

use super::memory_budget::{AccountId, MemoryBudget};
use super::sync::{Condvar, Mutex, MutexGuard};

/// The flow of a path, over all of a transfer's connections together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flow {
    /// The rate.
    pub rate: Rate,
    /// The RTT to the sender.
    pub rtt: Rtt,
}

/// The segments of one transfer; its share of the budget grows while the disk stalls.
#[derive(Debug)]
pub struct SegmentPool {
    budget: MemoryBudget,
    account: AccountId,
    freed: Arc<Condvar>,
    /// `None` if the budget is fixed.
    tuner: Option<Mutex<AppBufferTuner>>,
    stalls: Mutex<WriterStalls>,
    started: Instant,
}

/// Smaller segments cost more disk time than they save memory, unless memory is short.
const WORTH_WRITING: Bytes = Bytes::mib(1);
/// The interval at which a receiver that waits for a segment checks whether the pool should grow.
const STEP: Duration = Duration::from_millis(5);

impl SegmentPool {
    /// Plans a pool for `streams` streams, with segments of the usual size or of `segment`;
    /// allocates no memory.
    pub fn new(budget: &MemoryBudget, segment: Option<Bytes>, streams: usize) -> Self {
        let freed = Arc::new(Condvar::new());
        let account = budget.open(segment, streams, Arc::clone(&freed));
        let tuner = budget.grows().then(Mutex::default);
        let (stalls, started) = (Mutex::default(), Instant::now());
        Self { budget: budget.clone(), account, freed, tuner, stalls, started }
    }

    /// Cuts the share for `streams` streams: a stream without two segments would wait for the
    /// others.
    pub fn serve(&self, streams: usize) {
        if self.tuner.is_some() {
            self.budget.grow(self.account, WORTH_WRITING * 2 * streams as u64);
        }
        self.budget.serve(self.account, streams);
    }

    /// Takes a segment for the part of `range` that lies in one segment's span of the file.
    ///
    /// Waits up to `patience` for a free segment, and meanwhile grows the pool if the writers
    /// stall; `Ok(None)` without one.
    ///
    /// # Errors
    /// ENOMEM if the kernel has no memory for the segment.
    pub fn take(&self, range: ByteRange, patience: Duration, flow: Flow) -> io::Result<Option<Segment>> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(memory) = self.budget.take(self.account, &self.freed, left.min(STEP))? {
                return Ok(Some(Segment::new(memory, range, self)));
            }
            if left.is_zero() {
                return Ok(None);
            }
            if let Some(tuner) = &self.tuner {
                let stall = lock(&self.stalls).longest(self.started.elapsed());
                let wanted = lock(tuner).observe(stall, flow.rate, flow.rtt);
                self.budget.grow(self.account, wanted);
            }
        }
    }

    /// Runs one write of a segment, and records its duration.
    pub(super) fn writing<T>(&self, write: impl FnOnce() -> T) -> T {
        lock(&self.stalls).begin(self.started.elapsed());
        let done = write();
        lock(&self.stalls).done(self.started.elapsed());
        done
    }

    /// Returns memory to the kernel that was needed only during a stall; to be called periodically.
    pub(crate) fn trim(&self) {
        self.budget.trim();
    }

    /// Returns the segment usage.
    pub fn usage(&self) -> Segments {
        self.budget.usage(self.account)
    }
}

impl Drop for SegmentPool {
    fn drop(&mut self) {
        self.budget.close(self.account);
    }
}

/// A segment of the file: memory aligned to the file, filled from `start` on.
#[derive(Debug)]
pub struct Segment {
    /// `None` only while dropping.
    memory: Option<Piece>,
    /// The file offset of the memory's first byte, a multiple of its size.
    base: u64,
    start: usize,
    end: usize,
    limit: usize,
    budget: MemoryBudget,
    account: AccountId,
}

impl Segment {
    fn new(memory: Piece, range: ByteRange, pool: &SegmentPool) -> Self {
        let size = memory.len() as u64;
        let base = range.start() & !(size - 1);
        let start = (range.start() - base) as usize;
        let limit = range.end().saturating_sub(base).min(size) as usize;
        let (budget, account) = (pool.budget.clone(), pool.account);
        Self { memory: Some(memory), base, start, end: start, limit, budget, account }
    }

    /// Returns the memory left to fill.
    pub fn spare(&mut self) -> &mut [u8] {
        let (end, limit) = (self.end, self.limit);
        self.memory.as_deref_mut().map_or(&mut [], |memory| &mut memory[end..limit])
    }

    /// Marks `n` bytes at the start of [`Self::spare`] as filled.
    pub fn fill(&mut self, n: usize) {
        self.end = self.end.saturating_add(n).min(self.limit);
    }

    /// Returns whether no memory is left to fill.
    pub fn is_full(&self) -> bool {
        self.end == self.limit
    }

    /// Returns the bytes received so far.
    pub fn data(&self) -> &[u8] {
        self.memory.as_deref().map_or(&[], |memory| &memory[self.start..self.end])
    }

    /// Returns the range of the file that the bytes belong to.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.base + self.start as u64, self.base + self.end as u64)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.budget.free(self.account, Bytes::new(memory.len() as u64), Some(memory));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only numbers, which stay valid after a panic of another thread.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
