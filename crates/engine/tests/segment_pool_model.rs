//! The segment pool and its memory budget under every interleaving of their threads, by loom.
//!
//! loom's waits never time out: a receiver that is not woken is reported as a deadlock.

#![allow(dead_code, unreachable_pub, reason = "the models call only a part of the files")]
#![allow(clippy::unwrap_used, reason = "as in every test")]

#[path = "../src/sink/memory_budget.rs"]
mod memory_budget;
#[path = "../src/sink/segment_arena.rs"]
mod segment_arena;
#[path = "../src/sink/segment_pool.rs"]
mod segment_pool;

mod sync {
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
}

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use loom::thread;
use memory_budget::{AppBuffer, MemoryBudget};
use segment_pool::{Flow, Segment, SegmentPool};

const SEGMENT: Bytes = Bytes::kib(64);

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Waits for a segment however long it takes.
fn take(pool: &SegmentPool) -> Segment {
    let patience = Duration::from_secs(3600);
    pool.take(ByteRange::new(0, u64::MAX), patience, Flow::default()).unwrap().unwrap()
}

/// Starts a thread that waits for a segment.
fn receiver(pool: &Arc<SegmentPool>) -> thread::JoinHandle<Segment> {
    let pool = Arc::clone(pool);
    thread::spawn(move || take(&pool))
}

fn budget(segments: u64) -> MemoryBudget {
    MemoryBudget::new(AppBuffer::Fixed(SEGMENT * segments))
}

#[test]
fn every_waiting_receiver_is_woken_by_a_free_segment() {
    explore(|| {
        let budget = budget(2);
        let pool = Arc::new(SegmentPool::new(&budget, Some(SEGMENT), 1));
        let held = [take(&pool), take(&pool)];
        let receivers = [(); 2].map(|()| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                drop(take(&pool));
                drop(take(&pool));
            })
        });
        drop(held);
        receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
        assert_eq!((budget.used(), pool.usage().in_use), (Bytes::ZERO, 0));
    });
}

#[test]
fn jobs_with_a_shared_budget_all_make_progress() {
    explore(|| {
        let budget = budget(4);
        let jobs = [(); 2].map(|()| {
            let budget = budget.clone();
            thread::spawn(move || {
                let pool = SegmentPool::new(&budget, None, 1);
                // One segment is filled while the other is written.
                let held = [take(&pool), take(&pool)];
                // The budget, and two small segments for the late job.
                assert!(budget.used() <= SEGMENT * 6);
                drop(held);
                drop(take(&pool));
            })
        });
        jobs.into_iter().for_each(|job| job.join().unwrap());
        assert_eq!(budget.used(), Bytes::ZERO);
    });
}

#[test]
fn freed_segment_for_two_receivers_wakes_both() {
    explore(|| {
        let pool = Arc::new(SegmentPool::new(&budget(4), None, 1));
        let [first, second] = [take(&pool), take(&pool)];
        // From two segments of 128 KiB to four of 64 KiB.
        pool.serve(2);
        let receivers = [(); 2].map(|()| receiver(&pool));
        drop(first);
        let taken = receivers.map(|receiver| receiver.join().unwrap());
        drop((second, taken));
        assert_eq!(pool.usage().in_use, 0);
    });
}

#[test]
fn segment_freed_by_one_job_wakes_another_below_its_share() {
    explore(|| {
        let budget = budget(16);
        let early = SegmentPool::new(&budget, None, 1);
        let [first, second] = [take(&early), take(&early)];
        let receiver = {
            let budget = budget.clone();
            thread::spawn(move || {
                let late = SegmentPool::new(&budget, None, 1);
                let (mut held, mut bytes) = (Vec::new(), 0);
                // More than two small segments require memory of the other job.
                while bytes < SEGMENT.as_usize() * 3 {
                    let mut segment = take(&late);
                    bytes += segment.spare().len();
                    held.push(segment);
                }
            })
        };
        drop(first);
        receiver.join().unwrap();
        drop(second);
        assert_eq!(budget.used(), Bytes::ZERO);
    });
}

#[test]
fn growth_or_end_of_another_job_wakes_a_waiting_receiver() {
    const LARGE: Bytes = Bytes::mib(32);
    /// A change of the receiver's pool, and of another one with a shared budget.
    type Change = fn(&SegmentPool, SegmentPool);
    let grow: Change = |pool, _other| pool.serve(48);
    let end: Change = |_, other| drop(other);
    for change in [grow, end] {
        explore(move || {
            let budget = MemoryBudget::new(AppBuffer::Auto);
            let pool = Arc::new(SegmentPool::new(&budget, Some(LARGE), 1));
            let other = SegmentPool::new(&budget, None, 1);
            let held = [take(&pool), take(&pool)];
            let receiver = receiver(&pool);
            change(&pool, other);
            // If the host has no memory for growth, this wakes the receiver.
            drop(held);
            drop(receiver.join().unwrap());
            assert_eq!(budget.used(), Bytes::ZERO);
        });
    }
}
