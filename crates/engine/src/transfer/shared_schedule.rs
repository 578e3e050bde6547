//! The range scheduler of a transfer, shared by its threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::ranges::ByteRange;
use longhaul_core::schedule::{RangeScheduler, Steal, WorkerId};
use longhaul_core::units::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::cancel::Cancel;
use crate::rate_limit::RateLimit;

/// A [`RangeScheduler`] behind a lock, with the clock for its `now`.
pub(crate) struct SharedSchedule {
    start: Instant,
    state: Mutex<RangeScheduler>,
    changed: Condvar,
    /// The limit of the transfer's rate: under it, a slow stream is no slower than others would be.
    limit: Option<RateLimit>,
    /// Whether the range requested before the streams started, if any, has been leased; until then
    /// nothing counts as done.
    is_begun: AtomicBool,
}

/// The interval at which a waiting thread checks for changes that no thread signals.
const WAIT_TICK: Duration = Duration::from_millis(100);

impl SharedSchedule {
    pub(super) fn new(
        start: Instant,
        scheduler: RangeScheduler,
        limit: Option<RateLimit>,
        is_begun: bool,
    ) -> Self {
        let (state, changed, is_begun) = (Mutex::new(scheduler), Condvar::new(), AtomicBool::new(is_begun));
        Self { start, state, changed, limit, is_begun }
    }

    /// Reads or changes the schedule without waking waiting threads.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut RangeScheduler, Duration) -> T) -> T {
        act(&mut self.state.lock(), self.start.elapsed())
    }

    /// Changes the schedule and wakes every waiting thread.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut RangeScheduler) -> T) -> T {
        let changed = act(&mut self.state.lock());
        self.changed.notify_all();
        changed
    }

    /// Leases the range that was requested before the streams started.
    pub(crate) fn lease_requested(&self, stream: WorkerId, range: ByteRange) {
        let mut state = self.state.lock();
        state.lease_requested(stream, range, self.start.elapsed());
        self.is_begun.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Returns whether every byte has been received.
    pub(crate) fn is_done(&self) -> bool {
        self.holds(&self.state.lock(), RangeScheduler::is_done)
    }

    /// Returns the bytes left to move.
    pub(crate) fn left(&self) -> Bytes {
        self.state.lock().left()
    }

    /// Applies `test` to the schedule; returns `false` until the first range is leased.
    fn holds(&self, state: &RangeScheduler, test: impl Fn(&RangeScheduler) -> bool) -> bool {
        self.is_begun.load(Ordering::Relaxed) && test(state)
    }

    /// Returns the rest of a stream's first lease.
    pub(crate) fn front(&self, stream: WorkerId) -> Option<ByteRange> {
        self.state.lock().front(stream)
    }

    /// Waits until a range can be leased, possibly released by or stolen from another stream; calls
    /// `interrupt` with a stream all of whose leases were stolen.
    ///
    /// Returns `false` once all bytes have arrived, or `over` returns true. A stream without work
    /// does not end earlier, because it takes over the leases of a stream that fails.
    pub(crate) fn wait_for_work(
        &self,
        stream: WorkerId,
        over: impl Fn() -> bool,
        interrupt: impl Fn(WorkerId),
    ) -> bool {
        let mut state = self.state.lock();
        state.update(stream, |status| status.waiting = true);
        let mut waited = false;
        loop {
            if self.holds(&state, RangeScheduler::is_done) || over() {
                return false;
            }
            if state.has_work(stream) {
                return true;
            }
            if waited {
                state.set_limited(self.limit.as_ref().and_then(RateLimit::rate).is_some());
                match state.steal(stream, self.start.elapsed()) {
                    Steal::Nothing => {}
                    Steal::Part => continue,
                    Steal::All(victim) => {
                        interrupt(victim);
                        continue;
                    }
                }
            }
            self.changed.wait_for(&mut state, WAIT_TICK);
            waited = true;
        }
    }

    /// Waits for `time`, or until all bytes have arrived or the transfer is stopped.
    pub(crate) fn rest(&self, time: Duration, stop: &Cancel) {
        self.wait_until(time, stop, RangeScheduler::is_done);
    }

    /// Waits for `time`, or until all ranges that may be leased now have arrived; returns whether
    /// they have.
    pub(crate) fn rest_until_idle(&self, time: Duration, stop: &Cancel) -> bool {
        self.wait_until(time, stop, RangeScheduler::is_idle)
    }

    fn wait_until(&self, time: Duration, stop: &Cancel, over: impl Fn(&RangeScheduler) -> bool) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.holds(&state, &over) || left.is_zero() || stop.is_cancelled() {
                return self.holds(&state, &over);
            }
            self.changed.wait_for(&mut state, left.min(WAIT_TICK));
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::schedule::Blocks;

    use super::*;

    const WHOLE: ByteRange = ByteRange::new(0, 10);

    fn schedule(gaps: Vec<ByteRange>, streams: usize, is_begun: bool) -> SharedSchedule {
        let mut scheduler = RangeScheduler::new(Blocks::new(gaps, 1, false, Bytes::new(1)));
        (0..streams).for_each(|stream| scheduler.join(stream, Duration::ZERO));
        SharedSchedule::new(Instant::now(), scheduler, None, is_begun)
    }

    #[test]
    fn schedule_is_not_done_before_the_first_lease() {
        let schedule = schedule(Vec::new(), 2, false);
        assert!(!schedule.is_done());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert!(!schedule.wait_for_work(1, || false, |_| ()));
                schedule.with(|s, _| s.outstanding(0))
            });
            std::thread::sleep(Duration::from_millis(50));
            schedule.lease_requested(0, WHOLE);
            assert!(!schedule.is_done());
            schedule.with(|s, now| s.received(0, WHOLE, now));
            schedule.change(|s| s.complete(0));
            assert_eq!(waiter.join().unwrap(), (Bytes::ZERO, 0));
        });
        assert!(schedule.is_done());
    }

    #[test]
    fn waiting_stream_leases_what_another_releases() {
        let schedule = schedule(vec![WHOLE], 2, true);
        schedule.with(|s, now| s.lease(0, now));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert!(schedule.wait_for_work(1, || false, |_| ()));
                let leased = schedule.with(|s, now| {
                    let range = s.lease(1, now).unwrap();
                    s.received(1, range, now);
                    range
                });
                schedule.change(|s| s.complete(1));
                (leased, schedule.wait_for_work(1, || false, |_| ()))
            });
            schedule.change(|s| s.leave(0));
            assert_eq!(waiter.join().unwrap(), (WHOLE, false));
        });
    }

    #[test]
    fn waiting_stream_steals_from_a_silent_one() {
        let schedule = schedule(vec![WHOLE], 2, true);
        schedule.with(|s, now| s.lease(0, now));
        let began = Instant::now();
        let interrupted = std::cell::Cell::new(None);
        assert!(schedule.wait_for_work(1, || false, |victim| interrupted.set(Some(victim))));
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert_eq!(interrupted.get(), Some(0));
    }

    #[test]
    fn rest_ends_with_the_last_byte() {
        let schedule = schedule(Vec::new(), 1, true);
        schedule.with(|s, now| s.lease_requested(0, ByteRange::new(0, 1), now));
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| schedule.rest(Duration::from_secs(60), &Cancel::new()));
            schedule.with(|s, now| s.received(0, ByteRange::new(0, 1), now));
            schedule.change(|s| s.complete(0));
        });
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
