use std::time::{Duration, Instant};

use longhaul_core::ranges::ByteRange;
use longhaul_core::tune::app_buffer::INITIAL_SIZE;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::memory_budget::{AppBuffer, MemoryBudget};
use super::segment_pool::{Flow, Segment, SegmentPool};

const KIB64: u64 = 64 << 10;
const FAST: Flow =
    Flow { rate: Rate::bits_per_sec(10_000_000_000), rtt: Rtt::new(Duration::from_millis(200)) };
/// Longer than the threshold of a stall.
const WAIT: Duration = Duration::from_millis(200);

fn fixed(size: Bytes) -> MemoryBudget {
    MemoryBudget::new(AppBuffer::Fixed(size))
}

/// A pool of `count` segments of 64 KiB, for one stream.
fn small(count: u64) -> SegmentPool {
    SegmentPool::new(&fixed(Bytes::new(count * KIB64)), Some(Bytes::new(KIB64)), 1)
}

fn take(pool: &SegmentPool, range: ByteRange) -> Option<Segment> {
    pool.take(range, Duration::from_millis(10), Flow::default()).unwrap()
}

/// Takes segments until none is left or `most` are held.
fn fill(pool: &SegmentPool, most: usize) -> Vec<Segment> {
    let size = pool.usage().size.get();
    let take = |n: u64| pool.take(ByteRange::new(n * size, (n + 1) * size), WAIT, FAST).unwrap();
    (0..most as u64).map_while(take).collect()
}

#[test]
fn pool_is_bounded_and_a_dropped_segment_is_free_again() {
    let pool = small(2);
    let range = ByteRange::new(0, KIB64);
    let (first, _second) = (take(&pool, range).unwrap(), take(&pool, range).unwrap());
    assert!(take(&pool, range).is_none());
    assert_eq!(pool.usage().bytes(), Bytes::new(2 * KIB64));
    drop(first);
    assert!(take(&pool, range).is_some());
    let pool = SegmentPool::new(&fixed(Bytes::mib(4)), None, 1);
    let mut held = take(&pool, ByteRange::new(0, u64::MAX)).unwrap();
    pool.serve(4);
    assert_eq!((pool.usage().size, pool.usage().count), (Bytes::kib(512), 8));
    let mut next = take(&pool, ByteRange::new(KIB64, u64::MAX)).unwrap();
    assert_eq!((held.spare().len(), next.spare().len()), (2 << 20, (512 << 10) - (64 << 10)));
}

#[test]
fn segment_is_aligned_to_the_file_and_crosses_neither_its_own_end_nor_that_of_the_range() {
    let pool = small(2);
    let mut segment = take(&pool, ByteRange::new(KIB64 + 100, 10 * KIB64)).unwrap();
    assert_eq!(segment.spare().len() as u64, KIB64 - 100);
    assert_eq!(segment.spare().as_ptr().align_offset(4096), 4096 - 100);
    segment.spare()[..3].copy_from_slice(b"abc");
    segment.fill(3);
    assert_eq!((segment.data(), segment.range()), (&b"abc"[..], ByteRange::new(KIB64 + 100, KIB64 + 103)));
    let mut short = take(&pool, ByteRange::new(5, 9)).unwrap();
    short.fill(4);
    assert!(short.is_full() && short.spare().is_empty());
}

#[test]
fn pool_grows_during_a_stall_and_returns_the_memory_while_the_flow_continues() {
    let budget = MemoryBudget::new(AppBuffer::Auto);
    let pool = SegmentPool::new(&budget, None, 1);
    assert_eq!(pool.usage().capacity(), INITIAL_SIZE);
    let held = pool.writing(|| fill(&pool, 30));
    // If the host has eight times the BDP of 250 MB.
    assert_eq!((held.len(), budget.mapped()), (30, Bytes::mib(4 * 30)));
    drop(held);
    let began = Instant::now();
    while budget.mapped() > Bytes::mib(8) {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", budget.mapped());
        drop([take(&pool, ByteRange::new(0, 1)), take(&pool, ByteRange::new(0, 1))]);
        pool.trim();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() > Duration::from_millis(500), "the flow may need it again");
    drop(pool);
    assert_eq!(budget.mapped(), Bytes::ZERO);
}

#[test]
fn fixed_buffer_does_not_grow_but_every_stream_has_two_segments() {
    let pool = SegmentPool::new(&fixed(Bytes::mib(8)), None, 1);
    assert_eq!(pool.writing(|| fill(&pool, 20)).len(), 2);
    let large = SegmentPool::new(&fixed(Bytes::gib(4)), None, 1);
    assert_eq!((large.usage().capacity(), large.usage().in_use), (Bytes::gib(4), 0));
    pool.serve(100);
    assert_eq!((pool.usage().size, pool.usage().count), (Bytes::kib(64), 200));
    let automatic = SegmentPool::new(&MemoryBudget::new(AppBuffer::Auto), None, 1);
    automatic.serve(100);
    assert!(automatic.usage().count >= 200, "{:?}", automatic.usage());
}

#[test]
fn growth_is_denied_until_another_pool_returns_memory() {
    let budget = MemoryBudget::new(AppBuffer::Auto);
    let pool = || SegmentPool::new(&budget, None, 1);
    let (first, second) = (pool(), pool());
    // Two segments for each stream: more than the host has.
    first.serve(1 << 24);
    let most = first.usage().capacity();
    second.serve(1 << 12);
    // Other programs allocate and free memory meanwhile.
    let granted = second.usage().capacity().saturating_sub(INITIAL_SIZE);
    assert!(most > INITIAL_SIZE && granted < Bytes::new(most.get() / 4), "{most} {granted}");
    drop((first, second));
    assert_eq!(pool().usage().capacity(), INITIAL_SIZE);
}

#[test]
fn pools_of_one_process_share_one_budget() {
    let budget = fixed(Bytes::mib(8));
    let first = SegmentPool::new(&budget, None, 1);
    assert_eq!(first.usage().capacity(), Bytes::mib(8));
    let second = SegmentPool::new(&budget, None, 1);
    assert_eq!([first.usage().capacity(), second.usage().capacity()], [Bytes::mib(4); 2]);
    let held = [fill(&first, 100), fill(&second, 100)];
    assert_eq!(budget.used(), Bytes::mib(8));
    drop(held);
    drop(first);
    assert_eq!((second.usage().capacity(), budget.used()), (Bytes::mib(8), Bytes::ZERO));
}

#[test]
fn late_job_has_two_small_segments_per_stream_while_the_budget_is_exhausted() {
    let budget = fixed(Bytes::mib(8));
    let first = SegmentPool::new(&budget, None, 1);
    let held = fill(&first, 100);
    let second = SegmentPool::new(&budget, None, 3);
    let small = fill(&second, 100);
    assert_eq!(small.len(), 6);
    assert_eq!(budget.used(), Bytes::mib(8) + Bytes::new(6 * KIB64));
    assert!(take(&first, ByteRange::new(0, 1)).is_none(), "more than its share");
    drop((held, small));
    assert_eq!(fill(&second, 100).len(), second.usage().count);
}
