//! The application buffer of one transfer: segments of its share of the memory budget.
//!
//! Taken when needed, given back when done, and the only back-pressure between socket and file:
//! when no segment is free, no thread reads the socket, its buffer fills and RWIN closes.

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

/// What a path delivers, over all of a transfer's connections together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flow {
    /// How fast.
    pub rate: Rate,
    /// How far away the sender is.
    pub rtt: Rtt,
}

/// The segments of one transfer; its share of the budget grows while the disk stalls.
#[derive(Debug)]
pub struct SegmentPool {
    budget: MemoryBudget,
    account: AccountId,
    freed: Arc<Condvar>,
    /// `None` where the budget is fixed.
    tuner: Option<Mutex<AppBufferTuner>>,
    stalls: Mutex<WriterStalls>,
    started: Instant,
}

/// Smaller segments cost the disk more than they save memory, unless that is short.
const WORTH_WRITING: Bytes = Bytes::mib(1);
/// How often a receiver that waits for a segment looks whether there should be more of them.
const STEP: Duration = Duration::from_millis(5);

impl SegmentPool {
    /// Plans a pool for so many streams, with segments of the usual size or of `segment`; it holds no memory yet.
    pub fn new(budget: &MemoryBudget, segment: Option<Bytes>, streams: usize) -> Self {
        let freed = Arc::new(Condvar::new());
        let account = budget.open(segment, streams, Arc::clone(&freed));
        let tuner = budget.grows().then(Mutex::default);
        let (stalls, started) = (Mutex::default(), Instant::now());
        Self { budget: budget.clone(), account, freed, tuner, stalls, started }
    }

    /// Cuts the share for so many streams: a stream without two segments would wait for the others.
    pub fn serve(&self, streams: usize) {
        if self.tuner.is_some() {
            self.budget.grow(self.account, WORTH_WRITING * 2 * streams as u64);
        }
        self.budget.serve(self.account, streams);
    }

    /// Takes a segment for the part of `range` that lies in one segment's worth of the file.
    ///
    /// Waits up to `patience` for one to be free, and meanwhile grows where the writers stall; `Ok(None)` where
    /// none was.
    ///
    /// # Errors
    /// ENOMEM where the kernel has no memory for it.
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

    /// Runs one write of a segment, and notes how long it takes.
    pub(super) fn writing<T>(&self, write: impl FnOnce() -> T) -> T {
        lock(&self.stalls).begin(self.started.elapsed());
        let done = write();
        lock(&self.stalls).done(self.started.elapsed());
        done
    }

    /// Gives memory back to the kernel that was needed only while the disk stalled; to be called now and then.
    pub(crate) fn trim(&self) {
        self.budget.trim();
    }

    /// Returns how much is in use.
    pub fn usage(&self) -> Segments {
        self.budget.usage(self.account)
    }
}

impl Drop for SegmentPool {
    fn drop(&mut self) {
        self.budget.close(self.account);
    }
}

/// A piece of the file on its way: memory aligned as the file is, filled from `start` on.
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
        if let Some(memory) = self.memory.take() {
            self.budget.free(self.account, Bytes::new(memory.len() as u64), Some(memory));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Numbers, whole whatever happened to another thread.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
