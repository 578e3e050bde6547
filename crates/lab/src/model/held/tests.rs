//! Held links in virtual time.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::*;
use crate::PathSpec;
use crate::model::discipline::{CodelParameters, CodelQueue, FifoQueue};
use crate::model::{Delay, Fate, Link, QueueLimit, RandomLoss, RatedQueue};
use crate::spec::ImpairmentSpec;

const MTU: Bytes = Bytes::new(1500);
const MS: Duration = Duration::from_millis(1);

fn millis(count: u64) -> Duration {
    MS * count as u32
}

fn packet(id: u64, pair: u16) -> QueuedPacket {
    QueuedPacket { id, size: MTU, flow: u64::from(pair), pair, ..QueuedPacket::default() }
}

fn fifo(bits_per_sec: u64, packets: u64) -> Bottleneck {
    let queue = FifoQueue::new(Box::new(QueueLimit::Packets(packets)));
    Bottleneck::new(Box::new(queue), Line::fixed(Rate::bits_per_sec(bits_per_sec)), None)
}

fn link(bottlenecks: Vec<Bottleneck>, delay: Duration, impairments: &str) -> HeldLink {
    let impairments = PathSpec::of(impairments).impairments;
    HeldLink::new(bottlenecks, Vec::new(), Tail::new(Link::new(), vec![delay], impairments, 1))
}

/// Sends packets of (time, pair) through a link; returns its events.
fn through(link: &mut HeldLink, arrivals: &[(Time, u16)]) -> Vec<HeldEvent> {
    let mut events = Vec::new();
    for (id, (at, pair)) in arrivals.iter().enumerate() {
        link.run_until(*at, &mut events);
        link.arrive(*at, packet(id as u64, *pair), &mut events);
    }
    while let Some(next) = link.next() {
        link.run_until(next, &mut events);
    }
    events
}

fn steady(packets: u64, gap: Duration, pair: u16) -> Vec<(Time, u16)> {
    (0..packets).map(|number| (Time::START + gap * number as u32, pair)).collect()
}

fn left(events: &[HeldEvent]) -> Vec<(u64, Time)> {
    let left = |event: &HeldEvent| match *event {
        HeldEvent::Leaves(Departure { id, at, .. }) => Some((id, at)),
        HeldEvent::Dropped { .. } => None,
    };
    events.iter().filter_map(left).collect()
}

#[test]
fn fifo_behaves_equally_held_or_not() {
    // Three bursts overflow the queue, at a rate whose packet time is no whole number of
    // nanoseconds.
    let arrivals: Vec<_> =
        (0..3u64).flat_map(|burst| vec![(Time::START + millis(burst * 13), 0); 30]).collect();
    let mut held = link(vec![fifo(7_000_000, 20)], millis(10), "");
    let mut known = Link::new()
        .then(RatedQueue::of_rate(Rate::bits_per_sec(7_000_000), QueueLimit::Packets(20)))
        .then(Delay::new(millis(10), Duration::ZERO, 1));
    let mut expected = Vec::new();
    for (id, (at, _)) in (0..).zip(&arrivals) {
        if let Fate::Leaves(at) = known.pass(*at, MTU) {
            expected.push((id, at));
        }
    }
    assert_eq!(left(&through(&mut held, &arrivals)), expected);
}

#[test]
fn every_packet_has_one_end() {
    let codel = CodelQueue::new(CodelParameters::default(), QueueLimit::Packets(100), MTU);
    let line = Line::fixed(Rate::bits_per_sec(12_000_000));
    let background = Background::new(vec![(Duration::ZERO, Rate::bits_per_sec(4_000_000))], MTU, 1);
    let bottlenecks = vec![Bottleneck::new(Box::new(codel), line, Some(background)), fifo(11_000_000, 50)];
    let before = Link::new().then(RandomLoss::new(0.05, 1));
    let tail = Tail::new(before, vec![millis(5)], ImpairmentSpec::default(), 1);
    let mut link = HeldLink::new(bottlenecks, Vec::new(), tail);
    let events = through(&mut link, &steady(5000, Duration::from_micros(900), 0));
    let id = |(HeldEvent::Dropped { id, .. } | HeldEvent::Leaves(Departure { id, .. })): &HeldEvent| *id;
    let mut ids: Vec<u64> = events.iter().map(id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..5000).collect::<Vec<_>>());
    let is_ours = |event: &&HeldEvent| matches!(event, HeldEvent::Dropped { cause: DropCause::Queue, .. });
    let (counts, lost) = (link.background(), events.iter().filter(is_ours).count());
    assert!(counts.offered > 1300 && lost > 100, "{counts:?}, {lost} of ours");
}

#[test]
fn only_delayed_packets_are_reordered() {
    let mut link = link(Vec::new(), millis(20), "jitter=5ms; reorder=10%,7ms");
    let mut events = left(&through(&mut link, &steady(10_000, MS, 0)));
    let sent = |id: u64| Time::START + millis(id);
    assert!(events.iter().all(|(id, at)| (millis(15)..=millis(32)).contains(&at.since(sent(*id)))));
    events.sort_by_key(|(id, at)| (*at, *id));
    let (mut newest, mut overtaken) = (0, 0);
    for (id, _) in &events {
        overtaken += usize::from(*id < newest);
        newest = newest.max(*id);
    }
    assert!((850..1150).contains(&overtaken), "{overtaken}");
}

#[test]
fn shares_of_packets_are_doubled_and_corrupted() {
    let mut link = link(Vec::new(), Duration::ZERO, "duplicate=2%; corrupt=5%");
    let events = through(&mut link, &steady(20_000, MS, 0));
    let count = |what: fn(&HeldEvent) -> bool| events.iter().filter(|event| what(event)).count();
    let doubled = count(|event| matches!(event, HeldEvent::Leaves(Departure { is_doubled: true, .. })));
    let corrupted = count(|event| matches!(event, HeldEvent::Leaves(Departure { is_corrupted: true, .. })));
    // Four standard deviations.
    assert!(doubled.abs_diff(400) < 80 && corrupted.abs_diff(1000) < 124, "{doubled}, {corrupted}");
}

#[test]
fn each_pair_has_its_delay_and_its_bottlenecks() {
    let delays = vec![millis(10), millis(50), millis(1)];
    let crossings = vec![Crossing::All, Crossing::First, Crossing::Second];
    let bottlenecks = vec![fifo(12_000_000, 10), fifo(6_000_000, 10)];
    let tail = Tail::new(Link::new(), delays, ImpairmentSpec::default(), 1);
    let mut link = HeldLink::new(bottlenecks, crossings, tail);
    // One packet of each pair, far apart: 1 ms at the first bottleneck, 2 ms at the second.
    let arrivals: Vec<_> =
        (0..3u16).map(|pair| (Time::START + millis(u64::from(pair) * 100), pair)).collect();
    let waited: Vec<_> = left(&through(&mut link, &arrivals))
        .iter()
        .map(|(id, at)| at.since(arrivals[*id as usize].0))
        .collect();
    assert_eq!(waited, [millis(13), millis(51), millis(3)]);
    // Pairs 0 and 2 share the second bottleneck; each alone would use all of it.
    let mut both = [steady(1000, MS, 0), steady(1000, MS, 2)].concat();
    both.sort();
    let later: Vec<_> = both.iter().map(|(at, pair)| (*at + millis(1000), *pair)).collect();
    let events = left(&through(&mut link, &later));
    let of = |pair| events.iter().filter(|(id, _)| both[*id as usize].1 == pair).count();
    assert!((450..560).contains(&(of(0) + of(2))), "{} and {}: 1 s at 6 Mbit/s is 500 packets", of(0), of(2));
}

/// Reference values from ns-3.37, by `scenarios/tools/ns3-codel.cc`.
#[test]
fn codel_drops_as_many_packets_as_that_of_ns3() {
    for (payload_mbits, expected) in
        [(12.5, 602.0), (13.0, 1017.0), (14.0, 1734.0), (16.0, 2889.0), (20.0, 4154.0)]
    {
        let queue = CodelQueue::new(CodelParameters::default(), QueueLimit::Packets(5000), MTU);
        let line = Line::fixed(Rate::bits_per_sec(12_000_000));
        let bottleneck = Bottleneck::new(Box::new(queue), line, None);
        let mut link = link(vec![bottleneck], Duration::ZERO, "");
        let gap = Duration::from_secs_f64(1472.0 * 8.0 / (payload_mbits * 1e6));
        let packets = (10.0 / gap.as_secs_f64()) as u64 + 1;
        let events = through(&mut link, &steady(packets, gap, 0));
        let dropped = events.len() - left(&events).len();
        let share = dropped as f64 / expected;
        assert!((share - 1.0).abs() < 0.02, "{payload_mbits} Mbit/s: {dropped}, not {expected}");
    }
}
