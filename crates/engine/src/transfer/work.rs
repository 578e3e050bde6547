//! What is left to fetch, shared by the streams: what nobody has claimed, and what each has asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::blocks::Blocks;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::claims::Claims;
use super::seat::Seat;
use crate::cancel::Cancel;
use crate::threads::lock;

/// The file's blocks, by who is to bring them.
pub(super) struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    blocks: Blocks,
    claims: BTreeMap<usize, Claims>,
    /// What was taken over from streams that had stalled, and how many in a row had.
    stalled: Vec<(ByteRange, u32)>,
}

/// How late a waiting stream notices what nobody tells it.
const TICK: Duration = Duration::from_millis(100);

impl Work {
    pub(super) fn new(blocks: Blocks) -> Self {
        Self {
            state: Mutex::new(State { blocks, claims: BTreeMap::new(), stalled: Vec::new() }),
            changed: Condvar::new(),
        }
    }

    /// Lets a stream claim blocks.
    pub(super) fn join(&self, seat: &Arc<Seat>) {
        lock(&self.state).claims.insert(seat.id, Claims::new(Arc::clone(seat)));
    }

    /// Takes back what a stream has claimed and not received, and lets it claim no more.
    pub(super) fn leave(&self, seat: &Seat) {
        self.give_back(seat);
        lock(&self.state).claims.remove(&seat.id);
    }

    /// Accounts for a block that was asked for before the streams began.
    pub(super) fn began(&self, seat: &Seat, block: ByteRange) {
        self.with(seat, |_, claims| claims.push(block));
    }

    /// Claims a block where one is left.
    pub(super) fn claim(&self, seat: &Seat) -> Option<ByteRange> {
        let State { blocks, claims, stalled } = &mut *lock(&self.state);
        let claims = claims.get_mut(&seat.id)?;
        let block = blocks.claim(seat.rate())?;
        let before = stalled.iter().filter(|(part, _)| part.overlaps(block)).map(|(_, stalls)| *stalls).max();
        claims.push(block);
        claims.follows(before.unwrap_or(0));
        Some(block)
    }

    /// Returns what is still to come of the block that a stream receives.
    pub(super) fn front(&self, seat: &Seat) -> Option<ByteRange> {
        self.with(seat, |_, claims| claims.front())?
    }

    /// Returns how much a stream has claimed and not received, over how many blocks.
    pub(super) fn asked(&self, seat: &Seat) -> (Bytes, usize) {
        self.with(seat, |_, claims| claims.asked()).unwrap_or_default()
    }

    /// Returns how much a stream should have asked for: `enough`, but towards the end no more than its rate's share of what is
    /// left, so that all end at once.
    pub(super) fn enough(&self, seat: &Seat, enough: Bytes) -> Bytes {
        let state = lock(&self.state);
        let rate_of = |seat: &Seat| seat.rate().as_bits_per_sec() as f64;
        let (mut left, mut rates) = (state.blocks.claimable(), 0.0);
        for claims in state.claims.values() {
            left += claims.asked().0;
            rates += rate_of(claims.seat());
        }
        // Whose rate is not known yet gets as much as anybody.
        let share = match rate_of(seat) {
            own if own > 0.0 => Bytes::new((left.get() as f64 * own / rates) as u64),
            _ => state.blocks.share(),
        };
        enough.min(share)
    }

    /// Returns how much nobody has claimed that may be.
    pub(super) fn claimable(&self) -> Bytes {
        lock(&self.state).blocks.claimable()
    }

    /// Accounts for `bytes` that came at the front of a stream's block; returns how many of them are its own, for
    /// another may have taken over the rest.
    pub(super) fn arrived(&self, seat: &Seat, bytes: usize) -> usize {
        self.with(seat, |_, claims| claims.arrived(bytes)).unwrap_or(0)
    }

    /// Notes that a stream is well, though it brings nothing: it waits for the disk.
    pub(super) fn excuse(&self, seat: &Seat) {
        self.with(seat, |_, claims| claims.heard());
    }

    /// Forgets a stream's block that has come; `false` where another has taken it over.
    pub(super) fn done(&self, seat: &Seat) -> bool {
        let popped = self.with(seat, |_, claims| claims.pop()).unwrap_or(false);
        self.changed.notify_all();
        popped
    }

    /// Takes back what a stream has claimed and not received.
    pub(super) fn give_back(&self, seat: &Seat) {
        self.with(seat, |blocks, claims| claims.clear().for_each(|block| blocks.give_back(block)));
        self.changed.notify_all();
    }

    /// Takes back what a stream's block has beyond `end`.
    pub(super) fn give_back_end(&self, seat: &Seat, end: u64) {
        self.with(seat, |blocks, claims| blocks.give_back(claims.shorten(end)));
        self.changed.notify_all();
    }

    /// Takes back what a stream has claimed beyond the next `keep` bytes.
    pub(super) fn give_back_beyond(&self, seat: &Seat, keep: Bytes) {
        let given = self.with(seat, |blocks, claims| {
            let (asked, _) = claims.asked();
            let given = asked > keep;
            claims.take_end(asked - keep).for_each(|block| blocks.give_back(block));
            given
        });
        if given == Some(true) {
            self.changed.notify_all();
        }
    }

    /// Begins a stream's block, all of the file, from its start again; returns how far it had come.
    pub(super) fn start_over(&self, seat: &Seat) -> Option<u64> {
        self.with(seat, |_, claims| claims.start_over())?
    }

    /// Plans for so many streams.
    pub(super) fn plan_for(&self, streams: usize) {
        lock(&self.state).blocks.plan_for(streams);
    }

    /// Lets so much be claimed from now on.
    pub(super) fn allow(&self, budget: Bytes) {
        lock(&self.state).blocks.allow(budget);
        self.changed.notify_all();
    }

    /// Returns whether every block is there.
    pub(super) fn is_done(&self) -> bool {
        lock(&self.state).is_done()
    }

    /// Wakes whoever waits, to look anew.
    pub(super) fn wake(&self) {
        // Under the lock, or somebody who has just looked would sleep through it.
        let _state = lock(&self.state);
        self.changed.notify_all();
    }

    /// Waits until a block can be claimed, if only because another stream gives it back or is too slow.
    ///
    /// `false` once every block is done, the transfer stopped, or this stream is to go: one that left earlier would
    /// not be there for the work of one that fails.
    pub(super) fn wait(&self, seat: &Seat, stop: &Cancel) -> bool {
        let mut state = lock(&self.state);
        let mut waited = false;
        loop {
            if state.is_done() || stop.is_cancelled() || seat.is_to_go() {
                return false;
            }
            if state.blocks.claimable() > Bytes::ZERO {
                return true;
            }
            if waited && state.take_over(seat, Instant::now()) {
                continue;
            }
            state = self.wait_tick(state, TICK);
            waited = true;
        }
    }

    /// Waits for `time`, or until every block is done or the transfer stopped.
    pub(super) fn rest(&self, time: Duration, stop: &Cancel) {
        self.wait_until(time, stop, State::is_done);
    }

    /// Waits for `time`, or until nothing is left to do of what may be done now; returns whether it is so.
    pub(super) fn rest_of_chunk(&self, time: Duration, stop: &Cancel) -> bool {
        self.wait_until(time, stop, State::is_idle)
    }

    fn wait_until(&self, time: Duration, stop: &Cancel, over: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if over(&state) || left.is_zero() || stop.is_cancelled() {
                return over(&state);
            }
            state = self.wait_tick(state, left.min(TICK));
        }
    }

    fn wait_tick<'a>(&'a self, state: MutexGuard<'a, State>, tick: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0
    }

    fn with<T>(&self, seat: &Seat, act: impl FnOnce(&mut Blocks, &mut Claims) -> T) -> Option<T> {
        let State { blocks, claims, .. } = &mut *lock(&self.state);
        claims.get_mut(&seat.id).map(|claims| act(blocks, claims))
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.blocks.claimable() == Bytes::ZERO && self.claims.values().all(Claims::is_empty)
    }

    fn is_done(&self) -> bool {
        self.is_idle() && self.blocks.unclaimed() == Bytes::ZERO
    }

    /// Takes over for an idle stream from the one that would be last; returns whether there was any.
    fn take_over(&mut self, idle: &Seat, now: Instant) -> bool {
        // Whom the server does not answer leaves it to those whom it does, and who will be idle too.
        if !idle.is_answered() && self.claims.values().any(|claims| claims.is_served(now)) {
            return false;
        }
        let last = self.claims.values_mut().max_by_key(|claims| claims.time_left(now));
        let Some(claims) = last else { return false };
        let load = claims.load(now);
        let Some(part) = load.worth_taking(idle.rate()) else { return false };
        for block in claims.take_end(part) {
            self.blocks.give_back(block);
            self.stalled.retain(|(part, _)| !part.overlaps(block));
            if load.is_stalled() {
                self.stalled.push((block, load.stalls + 1));
            }
        }
        if claims.is_empty() {
            claims.interrupt();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(work: &Work, count: usize) -> Vec<Arc<Seat>> {
        let seats: Vec<_> = (0..count).map(|id| Arc::new(Seat::new(id, &Cancel::new()))).collect();
        seats.iter().for_each(|seat| work.join(seat));
        seats
    }

    fn work(blocks: Vec<ByteRange>) -> Work {
        Work::new(Blocks::new(blocks, 1, false, Bytes::new(1)))
    }

    #[test]
    fn who_waits_gets_what_another_gives_back() {
        let whole = ByteRange::new(0, 10);
        let work = work(vec![whole]);
        let [first, second] = seats(&work, 2).try_into().unwrap();
        let stop = Cancel::new();
        assert_eq!(work.claim(&first), Some(whole));
        assert_eq!(work.arrived(&first, 4), 4);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert!(work.wait(&second, &stop));
                let block = work.claim(&second);
                assert!(work.done(&second));
                (block, work.wait(&second, &stop))
            });
            work.leave(&first);
            assert_eq!(waiter.join().unwrap(), (Some(ByteRange::new(4, 10)), false));
        });
    }

    #[test]
    fn who_waits_takes_over_from_one_that_is_silent() {
        let whole = ByteRange::new(0, 10);
        let work = work(vec![whole]);
        let [first, second] = seats(&work, 2).try_into().unwrap();
        work.claim(&first);
        assert_eq!(work.arrived(&first, 3), 3);
        let began = Instant::now();
        assert!(work.wait(&second, &Cancel::new()));
        assert!(began.elapsed() >= Duration::from_secs(1) && first.cancel().is_cancelled());
        assert_eq!(work.claim(&second), Some(ByteRange::new(3, 10)));
        // What comes after all is no longer wanted.
        assert_eq!((work.arrived(&first, 3), work.done(&first)), (0, false));
    }

    /// Whoever comes first claims it, and has the patience for it; others have not.
    #[test]
    fn patience_goes_with_what_was_waited_for() {
        let work = work(vec![ByteRange::new(0, 10), ByteRange::new(50, 60)]);
        let [stalls, idle, other] = seats(&work, 3).try_into().unwrap();
        assert_eq!(work.claim(&stalls), Some(ByteRange::new(0, 10)));
        let later = Instant::now() + Duration::from_secs(2);
        let stalls_of = |seat: &Seat| lock(&work.state).claims[&seat.id].load(later).stalls;
        assert!(lock(&work.state).take_over(&idle, later));
        assert_eq!(work.claim(&other), Some(ByteRange::new(0, 10)));
        assert_eq!(work.claim(&idle), Some(ByteRange::new(50, 60)));
        assert_eq!([&stalls, &idle, &other].map(|seat| stalls_of(seat)), [0, 0, 1]);
        work.arrived(&other, 1);
        assert_eq!(stalls_of(&other), 0);
    }

    #[test]
    fn who_goes_keeps_what_comes_soon() {
        let work = work(vec![ByteRange::new(0, 10)]);
        let [goes, stays] = seats(&work, 2).try_into().unwrap();
        work.claim(&goes);
        work.arrived(&goes, 2);
        for _ in 0..2 {
            work.give_back_beyond(&goes, Bytes::new(3));
            assert_eq!(work.front(&goes), Some(ByteRange::new(2, 5)));
        }
        assert_eq!(work.claim(&stays), Some(ByteRange::new(5, 10)));
        work.give_back_beyond(&goes, Bytes::new(30));
        assert_eq!(work.arrived(&goes, 4), 3);
    }

    #[test]
    fn a_chunk_ends_before_the_file_does() {
        let work = work(vec![ByteRange::new(0, 10)]);
        let [only] = seats(&work, 1).try_into().unwrap();
        let stop = Cancel::new();
        work.allow(Bytes::new(4));
        assert_eq!((work.claim(&only), work.claim(&only)), (Some(ByteRange::new(0, 4)), None));
        assert!(!work.rest_of_chunk(Duration::ZERO, &stop));
        work.done(&only);
        assert!(work.rest_of_chunk(Duration::from_secs(60), &stop) && !work.is_done());
        work.allow(Bytes::new(100));
        assert_eq!(work.claim(&only), Some(ByteRange::new(4, 10)));
    }

    #[test]
    fn a_rest_ends_with_the_work() {
        let work = work(Vec::new());
        let [only] = seats(&work, 1).try_into().unwrap();
        work.began(&only, ByteRange::new(0, 1));
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| work.rest(Duration::from_secs(60), &Cancel::new()));
            work.done(&only);
        });
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_stop_ends_the_wait_and_so_does_the_wish_that_one_goes() {
        let work = work(Vec::new());
        let [busy, idle] = seats(&work, 2).try_into().unwrap();
        work.began(&busy, ByteRange::new(0, 1));
        let stop = Cancel::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| work.wait(&idle, &stop));
            idle.send_away();
            work.wake();
            assert!(!waiter.join().unwrap());
        });
        stop.cancel();
        assert!(!work.wait(&busy, &stop));
    }
}
