//! The memory between sockets and files of one process, shared by the segment pools of its
//! transfers.
//!
//! ```text
//! MemoryBudget: 64 MiB + growth, or SIZE
//!   +-- pool of job 1: an equal share + own growth, cut into segments
//!   +-- pool of job 2: an equal share + own growth, cut into segments
//! ```
//!
//! A pool takes segments up to its share while the budget has space. An earlier job may still hold
//! more than its share; until that is returned, other jobs have two small segments per stream, so
//! that every job progresses.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::buffer_plan::{self, SegmentPlan};
use longhaul_core::telemetry::Segments;
use longhaul_core::tune::app_buffer::{INITIAL_SIZE, growth_left};
use longhaul_core::units::Bytes;
use longhaul_sys::chunk::{Chunk, Piece};
use longhaul_sys::host;

use super::segment_arena::SegmentArena;
use super::sync::{Condvar, Mutex, MutexGuard};

/// The limit of the memory that a process holds between sockets and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppBuffer {
    /// 64 MiB, and more during disk stalls that exceed this buffer.
    #[default]
    Auto,
    /// A fixed limit.
    Fixed(Bytes),
}

impl AppBuffer {
    /// Returns the initial size.
    pub const fn at_start(self) -> Bytes {
        match self {
            Self::Auto => INITIAL_SIZE,
            Self::Fixed(size) => size,
        }
    }
}

/// The memory budget of a process; clones share it.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    buffer: AppBuffer,
    state: Arc<Mutex<BudgetState>>,
}

/// Identifies a pool's account in its budget.
pub(super) type AccountId = u64;

#[derive(Debug)]
struct BudgetState {
    base: Bytes,
    accounts: Vec<Account>,
    next: AccountId,
    /// The bytes of segments in use over all pools, including dropped ones.
    used: Bytes,
    /// The bytes by which the pools have grown.
    grown: Bytes,
    arena: SegmentArena,
}

/// A pool's part of a budget.
#[derive(Debug)]
struct Account {
    id: AccountId,
    streams: usize,
    /// The requested size of a segment.
    segment: Option<Bytes>,
    /// The account's share, cut into segments.
    plan: SegmentPlan,
    in_use: usize,
    used: Bytes,
    grown: Bytes,
    /// The number of receivers that wait for a segment.
    waiting: usize,
    freed: Arc<Condvar>,
}

/// The segment size of a pool when the budget is exhausted; buffer_plan::segments cuts none
/// smaller.
const SMALL: Bytes = Bytes::kib(64);

impl MemoryBudget {
    /// Creates the budget without allocating memory.
    pub fn new(buffer: AppBuffer) -> Self {
        let state = BudgetState {
            base: buffer.at_start(),
            accounts: Vec::new(),
            next: 0,
            used: Bytes::ZERO,
            grown: Bytes::ZERO,
            arena: SegmentArena::new(Instant::now()),
        };
        Self { buffer, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the initial size.
    pub(crate) fn at_start(&self) -> Bytes {
        self.buffer.at_start()
    }

    /// Returns whether the budget may grow.
    pub fn grows(&self) -> bool {
        self.buffer == AppBuffer::Auto
    }

    /// Returns the bytes of segments in use over all pools.
    pub fn used(&self) -> Bytes {
        self.lock().used
    }

    /// Opens an account for `streams` streams, and divides the budget again.
    pub(super) fn open(&self, segment: Option<Bytes>, streams: usize, freed: Arc<Condvar>) -> AccountId {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.accounts.push(Account {
            id,
            streams,
            segment,
            plan: SegmentPlan { size: SMALL, count: 0 },
            in_use: 0,
            used: Bytes::ZERO,
            grown: Bytes::ZERO,
            waiting: 0,
            freed,
        });
        state.cut();
        id
    }

    /// Closes an account; its segments in use count until they are returned.
    pub(super) fn close(&self, id: AccountId) {
        let mut state = self.lock();
        if let Some(index) = state.index(id) {
            let account = state.accounts.swap_remove(index);
            state.grown = state.grown.saturating_sub(account.grown);
            state.cut();
            let unneeded = state.unneeded(false);
            drop(state);
            // The drop unmaps, and therefore happens outside the lock, here and below.
            drop(unneeded);
        }
    }

    /// Cuts the account's share for `streams` streams.
    pub(super) fn serve(&self, id: AccountId, streams: usize) {
        let mut state = self.lock();
        if let Some(index) = state.index(id) {
            state.accounts[index].streams = streams;
            state.cut();
        }
    }

    /// Grows the account's share towards `wanted`, as far as the host's memory allows.
    pub(super) fn grow(&self, id: AccountId, wanted: Bytes) {
        let lacks = |state: &BudgetState| {
            state.index(id).map(|index| (index, wanted.saturating_sub(state.share(index))))
        };
        if lacks(&self.lock()).is_none_or(|(_, more)| more == Bytes::ZERO) {
            return;
        }
        // Read without the lock. If the host does not report its memory, shares stay unchanged.
        let available = host::available_memory().unwrap_or_default();
        let mut state = self.lock();
        if let Some((index, more)) = lacks(&state) {
            let granted = more.min(growth_left(available, state.grown));
            if granted > Bytes::ZERO {
                state.accounts[index].grown += granted;
                state.grown += granted;
                state.cut();
            }
        }
    }

    /// Takes memory for a segment of the account's segment size or smaller, and waits up to
    /// `patience` for it.
    ///
    /// `freed` is the account's condition variable. `Ok(None)` if none became free.
    ///
    /// # Errors
    /// ENOMEM if the kernel has no memory for the segment.
    pub(super) fn take(
        &self,
        id: AccountId,
        freed: &Condvar,
        patience: Duration,
    ) -> io::Result<Option<Piece>> {
        let mut state = self.lock();
        let Some(mut index) = state.index(id) else { return Ok(None) };
        let mut granted = state.grant(index);
        if granted.is_none() {
            state.accounts[index].waiting += 1;
            (state, granted) =
                wait(state, freed, patience, |state| state.index(id).and_then(|index| state.grant(index)));
            index = match state.index(id) {
                Some(index) => index,
                None => return Ok(None),
            };
            state.accounts[index].waiting -= 1;
        }
        let Some(size) = granted else { return Ok(None) };
        let account = &mut state.accounts[index];
        account.in_use += 1;
        account.used += size;
        state.used += size;
        let memory = state.arena.take(size);
        let unneeded = state.unneeded(memory.is_none());
        // One freed segment may suffice for two receivers.
        state.wake();
        drop(state);
        drop(unneeded);
        if memory.is_some() {
            return Ok(memory);
        }
        let (chunk, memory) = SegmentArena::map(size).inspect_err(|_| self.free(id, size, None))?;
        self.lock().arena.add(chunk);
        Ok(Some(memory))
    }

    /// Takes back the memory of a segment of `size` bytes.
    pub(super) fn free(&self, id: AccountId, size: Bytes, memory: Option<Piece>) {
        let mut state = self.lock();
        // Under the lock, because a receiver is woken for this memory.
        drop(memory);
        state.used = state.used - size;
        if let Some(index) = state.index(id) {
            let account = &mut state.accounts[index];
            account.in_use -= 1;
            account.used = account.used - size;
        }
        state.wake();
        let unneeded = state.unneeded(false);
        drop(state);
        drop(unneeded);
    }

    /// Returns unused memory to the kernel; taking and freeing segments does so too.
    pub(super) fn trim(&self) {
        let unneeded = self.lock().unneeded(false);
        drop(unneeded);
    }

    /// Returns the bytes mapped for segments.
    #[cfg(test)]
    pub(super) fn mapped(&self) -> Bytes {
        self.lock().arena.mapped()
    }

    /// Returns the account's segment usage.
    pub(super) fn usage(&self, id: AccountId) -> Segments {
        let state = self.lock();
        state.index(id).map_or_else(Segments::default, |index| {
            let Account { in_use, plan: SegmentPlan { size, count }, .. } = state.accounts[index];
            Segments { in_use, count, size }
        })
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        // Only numbers, which stay valid after a panic of another thread.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetState {
    fn index(&self, id: AccountId) -> Option<usize> {
        self.accounts.iter().position(|account| account.id == id)
    }

    /// Returns the limit of all segments together, except the two small ones per stream.
    fn limit(&self) -> Bytes {
        self.base + self.grown
    }

    fn share(&self, index: usize) -> Bytes {
        Bytes::new(self.base.get() / self.accounts.len().max(1) as u64) + self.accounts[index].grown
    }

    /// Cuts every share again; segments in use are unaffected.
    fn cut(&mut self) {
        for index in 0..self.accounts.len() {
            let share = self.share(index);
            let account = &mut self.accounts[index];
            account.plan = match account.segment {
                Some(segment) => buffer_plan::segments_of(segment, share, account.streams),
                None => buffer_plan::segments(share, account.streams),
            };
        }
        self.wake();
    }

    /// Returns the size of the segment that the account may take now.
    fn grant(&self, index: usize) -> Option<Bytes> {
        let Account { plan: SegmentPlan { size, count }, used, segment, streams, .. } = self.accounts[index];
        if used + size <= size * count as u64 && self.used + size <= self.limit() {
            return Some(size);
        }
        let small = segment.unwrap_or(SMALL).min(size);
        (used + small <= small * 2 * streams.max(1) as u64).then_some(small)
    }

    /// Takes unused chunks; takes all free chunks if there is no pool left, or if the limit is
    /// reached and no chunk has space, so that another `is_to_be_mapped`.
    fn unneeded(&mut self, is_to_be_mapped: bool) -> Vec<Arc<Chunk>> {
        if self.accounts.is_empty() || is_to_be_mapped && self.arena.mapped() >= self.limit() {
            return self.arena.clear();
        }
        self.arena.unneeded(Instant::now())
    }

    /// Wakes a receiver of every pool that can take a segment; each woken receiver wakes the next.
    fn wake(&self) {
        for (index, account) in self.accounts.iter().enumerate() {
            if account.waiting > 0 && self.grant(index).is_some() {
                account.freed.notify_one();
            }
        }
    }
}

/// Waits until `grant` returns a value, up to `patience`.
fn wait<'a>(
    mut state: MutexGuard<'a, BudgetState>,
    freed: &Condvar,
    patience: Duration,
    grant: impl Fn(&BudgetState) -> Option<Bytes>,
) -> (MutexGuard<'a, BudgetState>, Option<Bytes>) {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let (woken, timeout) = freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        let granted = grant(&state);
        if granted.is_some() || timeout.timed_out() {
            return (state, granted);
        }
    }
}
