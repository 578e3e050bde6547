//! Ranges of a file leased to workers, first come, first served; an idle worker steals the tail of
//! a slow one.
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
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use blocks::Blocks;
pub use lease::ConnectionStatus;

use crate::ranges::ByteRange;
use crate::units::Bytes;
use lease::Leases;
use steal::TakeoverLimit;

/// Names a worker of one job; no number is used twice.
pub type WorkerId = usize;

/// What is left to fetch: what no worker has leased, and what each worker has leased and not
/// received.
#[derive(Debug)]
pub struct RangeScheduler {
    blocks: Blocks,
    workers: BTreeMap<WorkerId, Leases>,
    /// Ranges stolen from stalled workers, each with the number of stalls in a row.
    stalled: Vec<(ByteRange, u32)>,
    takeovers: TakeoverLimit,
    /// Whether tasks of this host wait for the CPU or for memory.
    pressed: bool,
    /// Whether a limit bounds the rate of all workers together.
    limited: bool,
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
        let (workers, takeovers) = (BTreeMap::new(), TakeoverLimit::default());
        Self { blocks, workers, stalled: Vec::new(), takeovers, pressed: false, limited: false }
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
    pub fn status(&self, worker: WorkerId) -> ConnectionStatus {
        self.workers.get(&worker).map(|leases| leases.status).unwrap_or_default()
    }

    /// Changes what is known of a worker's connection.
    pub fn update(&mut self, worker: WorkerId, change: impl FnOnce(&mut ConnectionStatus)) {
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

    /// Leases a chunk of at most `most` bytes to a worker that moves all of its leases together,
    /// over one connection or several.
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

    /// Bounds how much a worker should have outstanding: `wanted`, but towards the end no more than
    /// its rate's share of what is left, so that all workers finish at once.
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
    /// A range that was stolen from a stalled worker is reserved for a waiting worker with an
    /// answered connection, where there is one: a server that bounds its connections may never
    /// answer another.
    pub fn has_work(&self, worker: WorkerId) -> bool {
        let Some(block) = self.blocks.front() else { return false };
        let unanswered = !self.status(worker).answered;
        let has_stalled = || self.stalled.iter().any(|(part, _)| part.overlaps(block));
        let can_serve = |leases: &Leases| leases.status.answered && leases.status.waiting;
        !(unanswered && has_stalled() && self.workers.values().any(can_serve))
    }

    /// Accounts for `range`, which arrived on a worker's connection; returns how many of its
    /// leading bytes the worker still leases: the rest was stolen meanwhile and must not be
    /// delivered.
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

    /// Ends a worker's lease that ends at `end`, whose rest the peer has confirmed; returns how
    /// long that was, or `None` where a part of it was stolen.
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

    /// Makes available again what a worker has leased beyond its next `keep` bytes; returns whether
    /// that was any.
    pub fn release_beyond(&mut self, worker: WorkerId, keep: Bytes) -> bool {
        let Some(leases) = self.workers.get_mut(&worker) else { return false };
        let (outstanding, _) = leases.outstanding();
        leases.take_tail(outstanding - keep).into_iter().for_each(|range| self.blocks.put_back(range));
        outstanding > keep
    }

    /// Lets a worker's first lease, all of the file, begin at the file's start again; returns how
    /// far it had come.
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

    /// Notes whether a limit bounds the rate of all workers together.
    pub fn set_limited(&mut self, limited: bool) {
        self.limited = limited;
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

    /// Returns whether every byte is leased or received: a worker gets more only where another
    /// fails, or is slow.
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
    /// A worker that its server does not answer steals nothing while others are served: they will
    /// be idle too. Connections that worked are taken over a few times in a period, and hardly ever
    /// where this host lacks CPU time or a limit bounds the rate.
    pub fn steal(&mut self, idle: WorkerId, now: Duration) -> Steal {
        let Some(thief) = self.workers.get(&idle).map(|leases| leases.status) else { return Steal::Nothing };
        if !thief.answered && self.workers.values().any(|leases| leases.is_served(now)) {
            return Steal::Nothing;
        }
        let last = self.workers.iter_mut().max_by_key(|(_, leases)| leases.time_left(now));
        let Some((&victim, leases)) = last else { return Steal::Nothing };
        let load = leases.load(now);
        let Some(part) = load.worth_stealing(thief.rate, self.pressed || self.limited) else {
            return Steal::Nothing;
        };
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
