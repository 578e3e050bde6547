//! Ranges of a file leased to workers, first come, first served; an idle worker steals the tail of a slow one.
//!
//! ```text
//!  gaps --> Blocks --lease--> Lease (front first) --received--> gone
//!             ^                  |       '--steal by an idle worker--> Blocks
//!             '----release-------'
//! ```
//!
//! [`RangeScheduler`] is pure: `now` is the time since any fixed moment.

mod blocks;
mod lease;
mod steal;

use std::collections::BTreeMap;
use std::time::Duration;

pub use blocks::Blocks;
pub use lease::WorkerStatus;

use crate::ranges::ByteRange;
use crate::units::Bytes;
use lease::Leases;
use steal::TakeoverLimit;

/// Names a worker of one job; no number is used twice.
pub type WorkerId = usize;

/// What is left to fetch: what no worker has leased, and what each worker has leased and not received.
#[derive(Debug)]
pub struct RangeScheduler {
    blocks: Blocks,
    workers: BTreeMap<WorkerId, Leases>,
    /// Ranges stolen from stalled workers, each with the number of stalls in a row.
    stalled: Vec<(ByteRange, u32)>,
    takeovers: TakeoverLimit,
    /// Whether tasks of this host wait for the CPU or for memory.
    pressed: bool,
}

/// What an idle worker's attempt to steal has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steal {
    /// No worker is slow enough.
    Nothing,
    /// A part of another worker's leases can be leased again.
    Part,
    /// All leases of this worker can; whatever it waits for should end.
    All(WorkerId),
}

impl RangeScheduler {
    /// Starts with what is to be fetched.
    pub fn new(blocks: Blocks) -> Self {
        let takeovers = TakeoverLimit::default();
        Self { blocks, workers: BTreeMap::new(), stalled: Vec::new(), takeovers, pressed: false }
    }

    /// Adds a worker.
    pub fn join(&mut self, worker: WorkerId, now: Duration) {
        self.workers.insert(worker, Leases::new(now));
    }

    /// Removes a worker and releases its leases.
    pub fn leave(&mut self, worker: WorkerId) {
        self.release(worker);
        self.workers.remove(&worker);
    }

    /// Returns what is known of a worker's connection.
    pub fn status(&self, worker: WorkerId) -> WorkerStatus {
        self.workers.get(&worker).map(|leases| leases.status).unwrap_or_default()
    }

    /// Changes what is known of a worker's connection.
    pub fn update(&mut self, worker: WorkerId, change: impl FnOnce(&mut WorkerStatus)) {
        if let Some(leases) = self.workers.get_mut(&worker) {
            change(&mut leases.status);
        }
    }

    /// Leases a range that was requested before the workers began.
    pub fn lease_requested(&mut self, worker: WorkerId, range: ByteRange, now: Duration) {
        if let Some(leases) = self.workers.get_mut(&worker) {
            leases.push(range, 0, now);
        }
    }

    /// Leases the next block to a worker; `None` where [`has_work`](Self::has_work) is false.
    pub fn lease(&mut self, worker: WorkerId, now: Duration) -> Option<ByteRange> {
        if !self.has_work(worker) {
            return None;
        }
        let leases = self.workers.get_mut(&worker)?;
        let block = self.blocks.take(leases.status.rate)?;
        let overlapping = self.stalled.iter().filter(|(part, _)| part.overlaps(block));
        leases.push(block, overlapping.map(|(_, stalls)| *stalls).max().unwrap_or(0), now);
        leases.status.waiting = false;
        Some(block)
    }

    /// Leases a chunk of at most `most` bytes to a worker that moves all of its leases together, over one connection or several.
    pub fn lease_chunk(&mut self, worker: WorkerId, most: Bytes, now: Duration) -> Option<ByteRange> {
        if !self.has_work(worker) {
            return None;
        }
        let leases = self.workers.get_mut(&worker)?;
        let chunk = self.blocks.take_length(most)?;
        leases.push(chunk, 0, now);
        leases.status.waiting = false;
        Some(chunk)
    }

    /// Returns what is still to come from `offset` on of the worker's lease that holds it.
    pub fn leased_at(&self, worker: WorkerId, offset: u64) -> Option<ByteRange> {
        self.workers.get(&worker)?.holding(offset)
    }

    /// Drops a worker's leases that have arrived, whichever they are.
    pub fn drop_received(&mut self, worker: WorkerId) {
        if let Some(leases) = self.workers.get_mut(&worker) {
            leases.drop_received();
        }
    }

    /// Returns what is still to come of a worker's first lease.
    pub fn front(&self, worker: WorkerId) -> Option<ByteRange> {
        self.workers.get(&worker)?.front()
    }

    /// Returns how much a worker has leased and not received, and in how many leases.
    pub fn outstanding(&self, worker: WorkerId) -> (Bytes, usize) {
        self.workers.get(&worker).map(Leases::outstanding).unwrap_or_default()
    }

    /// Bounds how much a worker should have outstanding: `wanted`, but towards the end no more than its rate's share of what
    /// is left, so that all workers finish at once.
    pub fn outstanding_target(&self, worker: WorkerId, wanted: Bytes) -> Bytes {
        let rate_of = |leases: &Leases| leases.status.rate.as_bits_per_sec() as f64;
        let (mut left, mut rates) = (self.blocks.available(), 0.0);
        for leases in self.workers.values() {
            left += leases.outstanding().0;
            rates += rate_of(leases);
        }
        // A worker without a measured rate gets an equal share.
        let share = match self.workers.get(&worker).map_or(0.0, rate_of) {
            own if own > 0.0 => Bytes::new((left.get() as f64 * own / rates) as u64),
            _ => self.blocks.share(),
        };
        wanted.min(share)
    }

    /// Returns whether a worker can lease a block now.
    ///
    /// A range that was stolen from a stalled worker is reserved for a waiting worker with an answered connection, where there
    /// is one: a server that bounds its connections may never answer another.
    pub fn has_work(&self, worker: WorkerId) -> bool {
        let Some(block) = self.blocks.front() else { return false };
        let unanswered = !self.status(worker).answered;
        let has_stalled = || self.stalled.iter().any(|(part, _)| part.overlaps(block));
        let can_serve = |leases: &Leases| leases.status.answered && leases.status.waiting;
        !(unanswered && has_stalled() && self.workers.values().any(can_serve))
    }

    /// Accounts for `range`, which arrived on a worker's connection; returns how many of its leading bytes the worker still
    /// leases: the rest was stolen meanwhile and must not be delivered.
    ///
    /// Ranges may arrive in any order within a worker's leases.
    pub fn received(&mut self, worker: WorkerId, range: ByteRange, now: Duration) -> Bytes {
        self.workers.get_mut(&worker).map_or(Bytes::ZERO, |leases| leases.received(range, now))
    }

    /// Restarts the time without data of a worker that waits for this host, not for the server.
    pub fn touch(&mut self, worker: WorkerId, now: Duration) {
        if let Some(leases) = self.workers.get_mut(&worker) {
            leases.touch(now);
        }
    }

    /// Drops a worker's first lease, which is empty by now; `false` where all of it was stolen.
    pub fn complete(&mut self, worker: WorkerId) -> bool {
        self.workers.get_mut(&worker).is_some_and(Leases::pop)
    }

    /// Ends a worker's lease that ends at `end`, whose rest the peer has confirmed; returns how long that was, or `None` where
    /// a part of it was stolen.
    pub fn confirm(&mut self, worker: WorkerId, end: u64, now: Duration) -> Option<Bytes> {
        self.workers.get_mut(&worker)?.confirm(end, now)
    }

    /// Returns whether a worker still leases the last byte before `end`.
    pub fn leases_until(&self, worker: WorkerId, end: u64) -> bool {
        self.workers.get(&worker).is_some_and(|leases| leases.ending_at(end).is_some())
    }

    /// Makes all leases of a worker available again.
    pub fn release(&mut self, worker: WorkerId) {
        if let Some(leases) = self.workers.get_mut(&worker) {
            leases.clear().for_each(|range| self.blocks.put_back(range));
        }
    }

    /// Ends a worker's first lease at `end` and makes the rest of it available again.
    pub fn shorten(&mut self, worker: WorkerId, end: u64) {
        if let Some(leases) = self.workers.get_mut(&worker) {
            self.blocks.put_back(leases.shorten(end));
        }
    }

    /// Makes available again what a worker has leased beyond its next `keep` bytes; returns whether that was any.
    pub fn release_beyond(&mut self, worker: WorkerId, keep: Bytes) -> bool {
        let Some(leases) = self.workers.get_mut(&worker) else { return false };
        let (outstanding, _) = leases.outstanding();
        leases.take_tail(outstanding - keep).into_iter().for_each(|range| self.blocks.put_back(range));
        outstanding > keep
    }

    /// Lets a worker's first lease, all of the file, begin at the file's start again; returns how far it had come.
    pub fn restart(&mut self, worker: WorkerId) -> Option<u64> {
        self.workers.get_mut(&worker)?.restart()
    }

    /// Makes bytes available again that were received and proved wrong.
    pub fn requeue(&mut self, range: ByteRange) {
        self.blocks.put_back(range);
    }

    /// Notes whether tasks of this host wait for the CPU or for memory.
    pub fn set_pressed(&mut self, pressed: bool) {
        self.pressed = pressed;
    }

    /// Plans blocks for this number of workers from now on.
    pub fn plan_for(&mut self, workers: usize) {
        self.blocks.plan_for(workers);
    }

    /// Lets `budget` bytes be leased from now on, and no more until the next call.
    pub fn allow(&mut self, budget: Bytes) {
        self.blocks.allow(budget);
    }

    /// Returns whether nothing is outstanding of what may be leased.
    pub fn is_idle(&self) -> bool {
        self.blocks.available() == Bytes::ZERO && self.workers.values().all(Leases::is_empty)
    }

    /// Returns how much may be leased now.
    pub fn available(&self) -> Bytes {
        self.blocks.available()
    }

    /// Returns whether every byte is leased or received: a worker gets more only where another fails, or is slow.
    pub fn is_all_leased(&self) -> bool {
        self.blocks.unleased() == Bytes::ZERO
    }

    /// Returns how much is still to be received.
    pub fn left(&self) -> Bytes {
        let leased = self.workers.values().map(|leases| leases.outstanding().0);
        leased.fold(self.blocks.unleased(), |sum, outstanding| sum + outstanding)
    }

    /// Returns whether every byte has been received.
    pub fn is_done(&self) -> bool {
        self.is_idle() && self.is_all_leased()
    }

    /// Steals for an idle worker from the one that would finish last.
    ///
    /// A worker that its server does not answer steals nothing while others are served: they will be idle too. Connections that
    /// worked are taken over a few times in a period, and hardly ever where this host lacks CPU time.
    pub fn steal(&mut self, idle: WorkerId, now: Duration) -> Steal {
        let Some(thief) = self.workers.get(&idle).map(|leases| leases.status) else { return Steal::Nothing };
        if !thief.answered && self.workers.values().any(|leases| leases.is_served(now)) {
            return Steal::Nothing;
        }
        let last = self.workers.iter_mut().max_by_key(|(_, leases)| leases.time_left(now));
        let Some((&victim, leases)) = last else { return Steal::Nothing };
        let load = leases.load(now);
        let Some(part) = load.worth_stealing(thief.rate, self.pressed) else { return Steal::Nothing };
        if leases.status.answered {
            if !self.takeovers.allows(now) {
                return Steal::Nothing;
            }
            self.takeovers.count(now);
        }
        for range in leases.take_tail(part) {
            self.blocks.put_back(range);
            self.stalled.retain(|(part, _)| !part.overlaps(range));
            if load.is_stalled() {
                self.stalled.push((range, load.stalls + 1));
            }
        }
        if leases.is_empty() { Steal::All(victim) } else { Steal::Part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Rate, Rtt};

    const WHOLE: ByteRange = ByteRange::new(0, 10);
    const START: Duration = Duration::ZERO;
    const LATER: Duration = Duration::from_secs(2);

    fn scheduler(gaps: Vec<ByteRange>, workers: usize) -> RangeScheduler {
        let mut scheduler = RangeScheduler::new(Blocks::new(gaps, 1, false, Bytes::new(1)));
        (0..workers).for_each(|worker| scheduler.join(worker, START));
        scheduler
    }

    #[test]
    fn released_range_is_leased_again() {
        let mut scheduler = scheduler(vec![WHOLE], 2);
        assert_eq!(scheduler.lease(0, START), Some(WHOLE));
        assert_eq!(scheduler.received(0, ByteRange::new(0, 4), START), Bytes::new(4));
        scheduler.leave(0);
        assert_eq!(scheduler.lease(1, START), Some(ByteRange::new(4, 10)));
        scheduler.received(1, ByteRange::new(4, 10), START);
        assert!(scheduler.complete(1) && scheduler.is_done());
    }

    #[test]
    fn a_chunk_whose_blocks_arrive_in_any_order_is_done_with_its_last() {
        let mut scheduler = scheduler(vec![WHOLE], 1);
        assert_eq!(scheduler.lease_chunk(0, Bytes::new(6), START), Some(ByteRange::new(0, 6)));
        assert_eq!(scheduler.lease_chunk(0, Bytes::new(6), START), Some(ByteRange::new(6, 10)));
        for (start, end) in [(6, 10), (3, 6), (0, 3)] {
            assert!(!scheduler.is_done());
            assert_eq!(scheduler.leased_at(0, start).map(ByteRange::start), Some(start));
            let len = Bytes::new(end - start);
            assert_eq!(scheduler.received(0, ByteRange::new(start, end), START), len);
            scheduler.drop_received(0);
        }
        assert!(scheduler.is_done());
    }

    #[test]
    fn idle_worker_steals_tail_of_stalled_worker() {
        let mut scheduler = scheduler(vec![WHOLE], 2);
        scheduler.lease(0, START);
        scheduler.received(0, ByteRange::new(0, 3), START);
        assert_eq!(scheduler.steal(1, START), Steal::Nothing);
        assert_eq!(scheduler.steal(1, LATER), Steal::All(0));
        assert_eq!(scheduler.lease(1, LATER), Some(ByteRange::new(3, 10)));
        // Bytes that arrive on the old connection after all are refused.
        assert_eq!(scheduler.received(0, ByteRange::new(3, 6), LATER), Bytes::ZERO);
        assert!(!scheduler.complete(0));
    }

    #[test]
    fn patience_grows_with_the_range_that_stalled() {
        let mut scheduler = scheduler(vec![WHOLE, ByteRange::new(50, 60)], 3);
        assert_eq!(scheduler.lease(0, START), Some(WHOLE));
        assert_eq!(scheduler.steal(1, LATER), Steal::All(0));
        assert_eq!(scheduler.lease(2, LATER), Some(WHOLE));
        assert_eq!(scheduler.lease(1, LATER), Some(ByteRange::new(50, 60)));
        let stalls = |scheduler: &RangeScheduler, worker| scheduler.workers[&worker].load(LATER).stalls;
        assert_eq!([0, 1, 2].map(|worker| stalls(&scheduler, worker)), [0, 0, 1]);
        scheduler.received(2, ByteRange::new(0, 1), LATER);
        assert_eq!(stalls(&scheduler, 2), 0);
    }

    #[test]
    fn unanswered_worker_steals_nothing_while_others_are_served() {
        let mut scheduler = scheduler(vec![WHOLE], 3);
        scheduler.lease(0, START);
        scheduler.update(1, |status| status.answered = true);
        assert_eq!(scheduler.steal(2, LATER), Steal::Nothing);
        assert_eq!(scheduler.steal(1, LATER), Steal::All(0));
    }

    #[test]
    fn stalled_range_is_reserved_for_a_waiting_answered_worker() {
        let mut scheduler = scheduler(vec![WHOLE], 3);
        scheduler.lease(0, START);
        scheduler.update(1, |status| status.answered = true);
        assert_eq!(scheduler.steal(1, LATER), Steal::All(0));
        // Worker 1 may still read the end of an answer.
        assert!(scheduler.has_work(2));
        scheduler.update(1, |status| status.waiting = true);
        assert_eq!((scheduler.has_work(2), scheduler.lease(2, LATER)), (false, None));
        assert_eq!(scheduler.lease(1, LATER), Some(WHOLE));
        // A range without a stall is not reserved, and no range is while worker 1 has a lease.
        scheduler.requeue(ByteRange::new(20, 30));
        assert!(scheduler.has_work(2));
        assert_eq!(scheduler.lease(2, LATER), Some(ByteRange::new(20, 30)));
        scheduler.stalled.push((ByteRange::new(40, 50), 1));
        scheduler.requeue(ByteRange::new(40, 50));
        assert!(scheduler.has_work(0));
    }

    #[test]
    fn pause_of_the_whole_host_makes_few_connections_start_anew() {
        let parts: Vec<_> = (0..32).map(|at| ByteRange::new(at * 20, at * 20 + 10)).collect();
        let taken_over = |pressed| {
            let mut scheduler = scheduler(parts.clone(), 33);
            for worker in 0..33 {
                scheduler.update(worker, |status| status.answered = true);
            }
            (0..32).for_each(|worker| assert!(scheduler.lease(worker, START).is_some()));
            scheduler.set_pressed(pressed);
            let all = (0..32).filter(|_| matches!(scheduler.steal(32, LATER), Steal::All(_))).count();
            assert_eq!(scheduler.blocks.unleased(), Bytes::new(10 * all as u64));
            all
        };
        assert_eq!([false, true].map(taken_over), [4, 0]);
    }

    #[test]
    fn draining_worker_keeps_what_arrives_soon() {
        let mut scheduler = scheduler(vec![WHOLE], 2);
        scheduler.lease(0, START);
        scheduler.received(0, ByteRange::new(0, 2), START);
        for _ in 0..2 {
            scheduler.release_beyond(0, Bytes::new(3));
            assert_eq!(scheduler.front(0), Some(ByteRange::new(2, 5)));
        }
        assert_eq!(scheduler.lease(1, START), Some(ByteRange::new(5, 10)));
        scheduler.release_beyond(0, Bytes::new(30));
        assert_eq!(scheduler.received(0, ByteRange::new(2, 6), START), Bytes::new(3));
    }

    #[test]
    fn budget_bounds_what_is_leased() {
        let mut scheduler = scheduler(vec![WHOLE], 1);
        scheduler.allow(Bytes::new(4));
        assert_eq!(
            (scheduler.lease(0, START), scheduler.lease(0, START)),
            (Some(ByteRange::new(0, 4)), None)
        );
        assert!(!scheduler.is_idle());
        scheduler.received(0, ByteRange::new(0, 4), START);
        scheduler.complete(0);
        assert!(scheduler.is_idle() && !scheduler.is_done());
        scheduler.allow(Bytes::new(100));
        assert_eq!(scheduler.lease(0, START), Some(ByteRange::new(4, 10)));
    }

    #[test]
    fn wrong_bytes_are_fetched_again() {
        let mut scheduler = scheduler(vec![WHOLE], 1);
        scheduler.lease(0, START);
        scheduler.received(0, WHOLE, START);
        scheduler.complete(0);
        assert!(scheduler.is_done());
        scheduler.requeue(ByteRange::new(2, 5));
        assert!(!scheduler.is_done());
        assert_eq!(scheduler.lease(0, START), Some(ByteRange::new(2, 5)));
    }

    #[test]
    fn sent_range_counts_once_it_is_confirmed() {
        let mut scheduler = scheduler(vec![WHOLE, ByteRange::new(50, 60)], 2);
        scheduler.lease(0, START);
        scheduler.lease(0, START);
        // The acknowledged front is no longer to be stolen; the last byte is, until the peer has confirmed the range.
        scheduler.received(0, ByteRange::new(0, 9), START);
        assert!(scheduler.leases_until(0, 10) && scheduler.left() == Bytes::new(11));
        assert_eq!(scheduler.confirm(0, 10, START), Some(Bytes::new(1)));
        assert_eq!(scheduler.steal(1, LATER), Steal::All(0));
        assert!(!scheduler.leases_until(0, 60));
        assert_eq!(scheduler.confirm(0, 60, LATER), None);
        scheduler.lease(1, LATER);
        assert_eq!(scheduler.confirm(1, 60, LATER), Some(Bytes::new(10)));
        assert!(scheduler.is_done());
    }

    #[test]
    fn shares_follow_rates_towards_the_end() {
        let mut scheduler = scheduler(vec![ByteRange::new(0, 100)], 2);
        scheduler.update(0, |status| status.rate = Rate::bits_per_sec(300));
        scheduler.update(1, |status| status.rate = Rate::bits_per_sec(100));
        scheduler.update(0, |status| status.rtt = Rtt::default());
        assert_eq!(scheduler.outstanding_target(0, Bytes::mib(1)), Bytes::new(75));
        assert_eq!(scheduler.outstanding_target(0, Bytes::new(10)), Bytes::new(10));
    }
}
