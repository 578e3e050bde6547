//! The memory between sockets and files of one process, shared by the segment pools of its transfers.
//!
//! ```text
//! MemoryBudget: 64 MiB + growth, or SIZE
//!   +-- pool of job 1: an equal share + own growth, cut into segments
//!   +-- pool of job 2: an equal share + own growth, cut into segments
//! ```
//!
//! A pool takes segments up to its share while the budget has room. A job that began first may still hold more than its
//! share: until it gives that back, the others have two small segments a stream, so that every job makes progress.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::plan::{self, SegmentPlan};
use longhaul_core::telemetry::Segments;
use longhaul_core::tune::app_buffer::{INITIAL_SIZE, growth_left};
use longhaul_core::units::Bytes;
use longhaul_sys::chunk::{Chunk, Piece};
use longhaul_sys::host;

use super::segment_arena::SegmentArena;
use super::sync::{Condvar, Mutex, MutexGuard};

/// How much memory a process may hold between sockets and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppBuffer {
    /// 64 MiB, and more where a disk stalls for longer than that covers.
    #[default]
    Auto,
    /// This much.
    Fixed(Bytes),
}

impl AppBuffer {
    /// Returns its size before anything was measured.
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

/// What names a pool's account in its budget.
pub(super) type AccountId = u64;

#[derive(Debug)]
struct BudgetState {
    base: Bytes,
    accounts: Vec<Account>,
    next: AccountId,
    /// Bytes of the segments in use, of all pools, those of pools that are gone included.
    used: Bytes,
    /// Bytes that the pools have grown by.
    grown: Bytes,
    arena: SegmentArena,
}

/// The part of a budget that one pool has.
#[derive(Debug)]
struct Account {
    id: AccountId,
    streams: usize,
    /// The size of a segment that was asked for.
    segment: Option<Bytes>,
    /// Its share, cut into segments.
    plan: SegmentPlan,
    in_use: usize,
    used: Bytes,
    grown: Bytes,
    /// Receivers that wait for a segment.
    waiting: usize,
    freed: Arc<Condvar>,
}

/// Segments that a pool has even where the budget is exhausted; plan::segments cuts none smaller.
const SMALL: Bytes = Bytes::kib(64);

impl MemoryBudget {
    /// Makes the budget; it holds no memory yet.
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

    /// Returns whether it may grow.
    pub fn grows(&self) -> bool {
        self.buffer == AppBuffer::Auto
    }

    /// Returns how many bytes the segments in use hold, of all pools.
    pub fn used(&self) -> Bytes {
        self.lock().used
    }

    /// Opens an account for so many streams, and divides the budget anew.
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

    /// Closes an account; segments of it that are in use count until they are given back.
    pub(super) fn close(&self, id: AccountId) {
        let mut state = self.lock();
        if let Some(index) = state.index(id) {
            let account = state.accounts.swap_remove(index);
            state.grown = state.grown.saturating_sub(account.grown);
            state.cut();
            let unneeded = state.unneeded(false);
            drop(state);
            // Unmapped outside the lock, here and below.
            drop(unneeded);
        }
    }

    /// Cuts the account's share for so many streams.
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
        // Read without the lock. Where the host does not report its memory, shares stay as they are.
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

    /// Takes memory for a segment, of the account's segment size or a smaller one, and waits up to `patience` for it.
    ///
    /// `freed` is the account's. `Ok(None)` where none became free.
    ///
    /// # Errors
    /// ENOMEM where the kernel has no memory for it.
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
        // One segment that was freed may do for two receivers.
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
        // Under the lock, for a receiver is woken for it.
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

    /// Gives memory back to the kernel that no segment has needed lately; taking and freeing do so too.
    pub(super) fn trim(&self) {
        let unneeded = self.lock().unneeded(false);
        drop(unneeded);
    }

    /// Returns how much memory is mapped for segments.
    #[cfg(test)]
    pub(super) fn mapped(&self) -> Bytes {
        self.lock().arena.mapped()
    }

    /// Returns how much of the account is in use.
    pub(super) fn usage(&self, id: AccountId) -> Segments {
        let state = self.lock();
        state.index(id).map_or_else(Segments::default, |index| {
            let Account { in_use, plan: SegmentPlan { size, count }, .. } = state.accounts[index];
            Segments { in_use, count, size }
        })
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        // Numbers, whole whatever happened to another thread.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetState {
    fn index(&self, id: AccountId) -> Option<usize> {
        self.accounts.iter().position(|account| account.id == id)
    }

    /// Returns the bytes that all segments together may have, the two small ones a stream aside.
    fn limit(&self) -> Bytes {
        self.base + self.grown
    }

    fn share(&self, index: usize) -> Bytes {
        Bytes::new(self.base.get() / self.accounts.len().max(1) as u64) + self.accounts[index].grown
    }

    /// Cuts every share anew; segments in use stay as they are.
    fn cut(&mut self) {
        for index in 0..self.accounts.len() {
            let share = self.share(index);
            let account = &mut self.accounts[index];
            account.plan = match account.segment {
                Some(segment) => plan::segments_of(segment, share, account.streams),
                None => plan::segments(share, account.streams),
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

    /// Takes the chunks that were not needed lately; all that are free where there is no pool any more, or where the limit is
    /// reached and none of them fits, so that another `is_to_be_mapped`.
    fn unneeded(&mut self, is_to_be_mapped: bool) -> Vec<Arc<Chunk>> {
        if self.accounts.is_empty() || is_to_be_mapped && self.arena.mapped() >= self.limit() {
            return self.arena.clear();
        }
        self.arena.unneeded(Instant::now())
    }

    /// Wakes a receiver of every pool that can take a segment; each wakes the next.
    fn wake(&self) {
        for (index, account) in self.accounts.iter().enumerate() {
            if account.waiting > 0 && self.grant(index).is_some() {
                account.freed.notify_one();
            }
        }
    }
}

/// Waits until `grant` has something, for `patience` at most.
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
