//! Links of simple nodes: exact times, queues that fill and drain, and losses.

mod ack_compression;
mod background;
mod bbr;
mod burst_loss;
mod paced_sender;

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::*;

const MTU: Bytes = Bytes::new(1500);

pub(crate) fn micros(micros: u64) -> Time {
    Time::from_nanos(micros * 1000)
}

impl RatedQueue {
    /// Creates a bottleneck of a constant rate.
    pub(super) fn of_rate(rate: Rate, admission: impl AdmissionPolicy + 'static) -> Self {
        Self::new(Line::fixed(rate), Box::new(admission), None)
    }

    fn shared(rate: Rate, admission: impl AdmissionPolicy + 'static, background: Background) -> Self {
        Self::new(Line::fixed(rate), Box::new(admission), Some(background))
    }
}

fn left(fate: Fate) -> Option<Time> {
    match fate {
        Fate::Leaves(at) => Some(at),
        Fate::Dropped(_) => None,
    }
}

#[test]
fn packet_takes_transmission_time_plus_delay() {
    let mut link = Link::new()
        .then(RatedQueue::of_rate(Rate::bits_per_sec(10_000_000_000), QueueLimit::Packets(10)))
        .then(Delay::new(Duration::from_millis(100), Duration::ZERO, 1));
    for (at, leaves) in [(0, 100_001_200), (0, 100_002_400), (50_000, 100_051_200)] {
        assert_eq!(link.pass(Time::from_nanos(at), MTU), Fate::Leaves(Time::from_nanos(leaves)));
    }
}

#[test]
fn a_busy_link_is_exact_to_the_nanosecond() {
    // At 3 bit/s a bit takes no whole number of nanoseconds; the error must not accumulate.
    let mut limit = RatedQueue::of_rate(Rate::bits_per_sec(3), QueueLimit::Packets(u64::MAX));
    let last = (0..3000).filter_map(|_| left(limit.pass(Time::START, Bytes::new(1)))).last();
    assert_eq!(last, Some(Time::from_nanos(8_000_000_000_000)));
}

#[test]
fn a_burst_leaves_exactly_what_the_queue_holds() {
    let rate = Rate::bits_per_sec(1_000_000);
    for (queue, survivors) in [
        (QueueLimit::Packets(1000), 1000),
        (QueueLimit::Bytes(Bytes::new(150_000)), 100),
        (QueueLimit::Bytes(Bytes::new(149_999)), 99),
        (QueueLimit::Bytes(Bytes::ZERO), 0),
    ] {
        let mut limit = RatedQueue::of_rate(rate, queue);
        let passed = (0..5000).filter(|_| left(limit.pass(Time::START, MTU)).is_some()).count();
        assert_eq!(passed, survivors, "{queue:?}");
    }
}

/// A NIC's super-packet: 64 KiB in packets of 1500 bytes that arrive at once.
#[test]
fn a_super_packet_joins_the_queue_packet_by_packet() {
    const PACKETS: u64 = 44;
    let switch =
        || RatedQueue::of_rate(Rate::bits_per_sec(1_000_000_000), QueueLimit::Bytes(Bytes::new(1_000_000)));
    let lost = |limit: &mut RatedQueue, at: Time| {
        (0..PACKETS).filter(|_| left(limit.pass(at, MTU)).is_none()).count() as u64
    };
    // One second, paced just below the rate: nothing is lost.
    let (mut limit, gap) = (switch(), PACKETS * 1500 * 8 * 1000 / 990);
    let paced: u64 = (0..1800).map(|number| lost(&mut limit, Time::from_nanos(number * gap))).sum();
    assert_eq!(paced, 0);
    // 3 MB at 10 Gbit/s: the queue holds 1 MB, a tenth of the burst has left meanwhile, and the
    // rest is lost.
    let (mut limit, gap, bursts) = (switch(), PACKETS * 1500 * 8 / 10, 3_000_000 / (PACKETS * 1500));
    let lost: u64 = (0..bursts).map(|number| lost(&mut limit, Time::from_nanos(number * gap))).sum();
    assert!((1_650_000..1_750_000).contains(&(lost * 1500)), "{lost} packets");
    assert_ne!(lost % PACKETS, 0, "never only whole super-packets");
}

#[test]
fn a_queue_drains_at_the_rate() {
    let mut limit = RatedQueue::of_rate(Rate::bits_per_sec(12_000_000), QueueLimit::Packets(4));
    // A packet takes 1 ms.
    for (at, passed) in [(0, 4), (999_999, 0), (1_000_000, 1), (60_000_000, 4)] {
        let seen = (0..9).filter(|_| left(limit.pass(Time::from_nanos(at), MTU)).is_some()).count();
        assert_eq!(seen, passed, "at {at} ns");
    }
}

#[test]
fn loss_has_the_share_asked_for_and_repeats_with_the_seed() {
    let lost = |share: f64, seed: u64| -> Vec<bool> {
        let mut node = RandomLoss::new(share, seed);
        (0..100_000).map(|_| left(node.pass(Time::START, MTU)).is_none()).collect()
    };
    let count = |fates: &[bool]| fates.iter().filter(|lost| **lost).count();
    // Four standard deviations of a binomial distribution.
    for (share, slack) in [(0.0, 0), (0.001, 40), (0.01, 126), (0.5, 633), (1.0, 0)] {
        let difference = count(&lost(share, 7)).abs_diff((share * 1e5) as usize);
        assert!(difference <= slack, "{share}: off by {difference}");
    }
    assert_eq!(lost(0.01, 1), lost(0.01, 1));
    assert_ne!(lost(0.01, 1), lost(0.01, 2));
}
