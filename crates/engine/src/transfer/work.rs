//! What is left to fetch, shared by the streams.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::blocks::Blocks;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use crate::cancel::Cancel;
use crate::threads::lock;

/// The blocks that nobody has claimed, and how many are under way.
pub(super) struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    blocks: Blocks,
    under_way: usize,
}

/// How late a waiting stream notices that the transfer is stopped.
const TICK: Duration = Duration::from_millis(100);

impl Work {
    pub(super) fn new(blocks: Blocks) -> Self {
        Self { state: Mutex::new(State { blocks, under_way: 0 }), changed: Condvar::new() }
    }

    /// Accounts for a block that was asked for before the streams began.
    pub(super) fn began(&self) {
        lock(&self.state).under_way += 1;
    }

    /// Claims a block where one is left.
    pub(super) fn claim(&self) -> Option<ByteRange> {
        lock(&self.state).claim()
    }

    /// Waits until a block can be claimed, if only because another stream gives it back.
    ///
    /// `false` once every block is done, or the transfer stopped: a stream that left earlier would not be
    /// there for the work of one that fails.
    pub(super) fn wait(&self, stop: &Cancel) -> bool {
        let mut state = lock(&self.state);
        while state.blocks.unclaimed() == Bytes::ZERO {
            if state.under_way == 0 || stop.is_cancelled() {
                return false;
            }
            state = self.wait_tick(state, TICK);
        }
        !stop.is_cancelled()
    }

    /// Waits for `time`, or until every block is done or the transfer stopped.
    pub(super) fn rest(&self, time: Duration, stop: &Cancel) {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        while (state.under_way > 0 || state.blocks.unclaimed() > Bytes::ZERO) && !stop.is_cancelled() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.wait_tick(state, left.min(TICK));
        }
    }

    /// Returns what a stream may ask for ahead of time: its share of what nobody has claimed.
    pub(super) fn share(&self) -> Bytes {
        let state = lock(&self.state);
        Bytes::new(state.blocks.unclaimed().get() / state.blocks.streams())
    }

    fn wait_tick<'a>(&'a self, state: MutexGuard<'a, State>, tick: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Accounts for a claimed block that has arrived.
    pub(super) fn done(&self) {
        lock(&self.state).under_way -= 1;
        self.changed.notify_all();
    }

    /// Takes back what has not arrived of a claimed block.
    pub(super) fn give_back(&self, rest: ByteRange) {
        let mut state = lock(&self.state);
        state.under_way -= 1;
        state.blocks.give_back(rest);
        self.changed.notify_all();
    }

    /// Takes back the end of a block that stays claimed.
    pub(super) fn give_back_end(&self, end: ByteRange) {
        lock(&self.state).blocks.give_back(end);
        self.changed.notify_all();
    }
}

impl State {
    fn claim(&mut self) -> Option<ByteRange> {
        self.blocks.claim().inspect(|_| self.under_way += 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_what_another_gives_back() {
        let whole = ByteRange::new(0, 10);
        let work = Work::new(Blocks::new(vec![whole], 1, Bytes::new(1)));
        let stop = Cancel::new();
        assert_eq!(work.claim(), Some(whole));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert!(work.wait(&stop));
                let block = work.claim();
                work.done();
                (block, work.wait(&stop))
            });
            work.give_back(ByteRange::new(4, 10));
            assert_eq!(waiter.join().unwrap(), (Some(ByteRange::new(4, 10)), false));
        });
    }

    #[test]
    fn a_rest_ends_with_the_work() {
        let work = Work::new(Blocks::new(Vec::new(), 2, Bytes::new(1)));
        work.began();
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| work.rest(Duration::from_secs(60), &Cancel::new()));
            work.done();
        });
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let work = Work::new(Blocks::new(Vec::new(), 1, Bytes::new(1)));
        work.began();
        let stop = Cancel::new();
        stop.cancel();
        assert!(!work.wait(&stop));
    }
}
