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

/// A scheduler whose first of `workers` workers has leased the whole.
fn leased(workers: usize) -> RangeScheduler {
    let mut scheduler = scheduler(vec![WHOLE], workers);
    assert_eq!(scheduler.lease(0, START), Some(WHOLE));
    scheduler
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
    let mut scheduler = leased(2);
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
fn stalled_range_is_stolen_by_an_answered_worker_and_reserved_for_it() {
    let mut scheduler = leased(3);
    scheduler.update(1, |status| status.answered = true);
    assert_eq!(scheduler.steal(2, LATER), Steal::Nothing);
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
fn limited_transfer_steals_only_what_has_stalled() {
    let whole = ByteRange::new(0, 100_000_000);
    let stolen = |limited, silent| {
        let mut scheduler = scheduler(vec![whole], 2);
        scheduler.lease(0, START);
        for (worker, mbit) in [(0, 1), (1, 900)] {
            scheduler.update(worker, |status| status.rate = Rate::bits_per_sec(mbit * 1_000_000));
        }
        scheduler.set_limited(limited);
        scheduler.touch(0, LATER);
        scheduler.steal(1, LATER + Duration::from_millis(silent))
    };
    for (limited, silent, expected) in [
        (false, 0, Steal::Part),
        (true, 0, Steal::Nothing),
        (true, 3999, Steal::Nothing),
        (true, 4000, Steal::All(0)),
    ] {
        assert_eq!(stolen(limited, silent), expected, "limited: {limited}, silent for {silent} ms");
    }
}

#[test]
fn worker_without_a_known_rate_neither_loses_its_range_nor_hides_a_stalled_worker() {
    let (whole, ms) = (ByteRange::new(0, 100_000_000), Duration::from_millis);
    let mut scheduler = scheduler(vec![whole, ByteRange::new(200_000_000, 200_000_010)], 3);
    for (worker, mbit) in [(0, 1), (1, 900)] {
        scheduler.update(worker, |status| status.rate = Rate::mbit(mbit));
    }
    // The first worker is slow in the first 140 ms, which shows nothing.
    scheduler.lease(0, START);
    scheduler.touch(0, ms(140));
    assert_eq!(scheduler.steal(1, ms(140)), Steal::Nothing);
    scheduler.lease(2, ms(999));
    assert_eq!(scheduler.steal(1, ms(1000)), Steal::Part);
    assert_eq!(scheduler.steal(1, ms(1140)), Steal::All(0));
}

#[test]
fn draining_worker_keeps_what_arrives_soon() {
    let mut scheduler = leased(2);
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
fn budget_bounds_what_is_leased_and_wrong_bytes_are_fetched_again() {
    let mut scheduler = scheduler(vec![WHOLE], 1);
    scheduler.allow(Bytes::new(4));
    assert_eq!((scheduler.lease(0, START), scheduler.lease(0, START)), (Some(ByteRange::new(0, 4)), None));
    assert!(!scheduler.is_idle());
    scheduler.received(0, ByteRange::new(0, 4), START);
    scheduler.complete(0);
    assert!(scheduler.is_idle() && !scheduler.is_done());
    scheduler.allow(Bytes::new(100));
    assert_eq!(scheduler.lease(0, START), Some(ByteRange::new(4, 10)));
    // Bytes that turn out to be wrong.
    let mut scheduler = leased(1);
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
    // The acknowledged front is no longer to be stolen; the last byte is, until the peer has
    // confirmed the range.
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
