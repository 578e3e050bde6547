//! Queue disciplines in front of a line, in virtual time.

use std::time::Duration;

use longhaul_core::units::Rate;

use super::*;
use crate::model::{QueueLimit, Red, RedParameters};

const MTU: Bytes = Bytes::new(1500);
/// Transmission time of a packet at 12 Mbit/s, in nanoseconds.
const MS: u64 = 1_000_000;

fn packet(id: u64, at: Time, flow: u64, is_ecn_capable: bool) -> QueuedPacket {
    QueuedPacket { id, size: MTU, flow, is_ecn_capable, is_marked: false, arrived: at, entered: at, pair: 0 }
}

/// Fates of packets: departures, drops and marks.
#[derive(Debug, Default)]
struct PacketFates {
    left: Vec<(Time, QueuedPacket)>,
    dropped: Vec<(Time, u64)>,
}

/// Time, flow, and whether the packet is ECN-capable.
type Arrival = (Time, u64, bool);

/// Sends `arrivals` through a queue and a line of one packet per millisecond.
fn through(queue: &mut dyn Discipline, arrivals: &[Arrival], end_ms: u64) -> PacketFates {
    let mut fates = PacketFates::default();
    let mut next = arrivals.iter().enumerate().peekable();
    let mut now = Time::START;
    while now < Time::from_nanos(end_ms * MS) {
        let mut dropped = Vec::new();
        while let Some((id, (at, flow, marks))) = next.next_if(|(_, (at, ..))| *at <= now) {
            queue.enqueue(*at, packet(id as u64, *at, *flow, *marks), Backlog::default(), &mut dropped);
        }
        if let Some(packet) = queue.dequeue(now, &mut dropped) {
            fates.left.push((now, packet));
        }
        fates.dropped.extend(dropped.iter().map(|packet| (now, packet.id)));
        now = now + Duration::from_millis(1);
    }
    fates
}

/// Arrivals of one flow, one per `gap_us`.
fn steady(to_ms: u64, gap_us: u64, flow: u64, marks: bool) -> Vec<Arrival> {
    (0..to_ms * 1000).step_by(gap_us as usize).map(|us| (Time::from_nanos(us * 1000), flow, marks)).collect()
}

const DEEP: QueueLimit = QueueLimit::Packets(10_000);

fn codel() -> CodelQueue {
    CodelQueue::new(CodelParameters::default(), DEEP, MTU)
}

#[test]
fn codel_ignores_a_burst_that_drains_within_an_interval() {
    let burst: Vec<_> = (0..90).map(|_| (Time::START, 1, false)).collect();
    let fates = through(&mut codel(), &burst, 300);
    assert_eq!((fates.left.len(), fates.dropped.len()), (90, 0));
}

#[test]
fn codel_marks_ecn_capable_packets_and_drops_none() {
    let fates = through(&mut codel(), &steady(1000, 909, 1, true), 1000);
    let marked = fates.left.iter().filter(|(_, packet)| packet.is_marked).count();
    assert!(marked > 5 && fates.dropped.is_empty(), "{marked}, {:?}", fates.dropped);
}

#[test]
fn limits_count_the_packet_in_transmission() {
    for limit in [QueueLimit::Packets(10), QueueLimit::Bytes(MTU * 10)] {
        let queues: [Box<dyn Discipline>; 3] = [
            Box::new(CodelQueue::new(CodelParameters::default(), limit, MTU)),
            Box::new(FqCodelQueue::new(FqCodelParameters::default(), limit, MTU)),
            Box::new(FifoQueue::new(Box::new(limit))),
        ];
        for mut queue in queues {
            let mut dropped = Vec::new();
            let sending = Backlog { bytes: MTU, packets: 1, ..Backlog::default() };
            for id in 0..20 {
                queue.enqueue(Time::START, packet(id, Time::START, id, false), sending, &mut dropped);
            }
            assert_eq!((queue.backlog().packets, dropped.len()), (9, 11), "{queue:?}");
            assert_eq!(queue.backlog().bytes, MTU * 9);
        }
    }
}

/// Sends flows 1 and 2 with these gaps (in microseconds) for 3 s.
fn beside(queue: &mut FqCodelQueue, first: u64, second: u64) -> (Vec<Arrival>, PacketFates) {
    let mut arrivals = [steady(3000, first, 1, false), steady(3000, second, 2, false)].concat();
    arrivals.sort_by_key(|(at, ..)| *at);
    let fates = through(queue, &arrivals, 3000);
    (arrivals, fates)
}

#[test]
fn fq_codel_lets_a_sparse_flow_pass_a_greedy_one() {
    let mut queue = FqCodelQueue::new(FqCodelParameters::default(), DEEP, MTU);
    // Flow 1 offers twice the line rate; flow 2 one packet per 20 ms.
    let (arrivals, fates) = beside(&mut queue, 500, 20_000);
    let sparse = fates.left.iter().filter(|(_, packet)| packet.flow == 2);
    let worst = sparse.clone().map(|(at, packet)| at.since(packet.arrived)).max().unwrap();
    assert!(sparse.count() > 140 && worst <= Duration::from_millis(3), "{worst:?}");
    let lost: Vec<_> = fates.dropped.iter().filter(|(_, id)| arrivals[*id as usize].1 == 2).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn fq_codel_shares_the_line_among_greedy_flows() {
    let mut queue = FqCodelQueue::new(FqCodelParameters::default(), QueueLimit::Packets(1000), MTU);
    // Flow 1 offers four times as much as flow 2; each offers more than half of the line.
    let (_, fates) = beside(&mut queue, 400, 1600);
    let of = |flow| fates.left.iter().filter(|(_, packet)| packet.flow == flow).count() as f64;
    assert!((0.9..1.12).contains(&(of(1) / of(2))), "{} and {}", of(1), of(2));
    assert!(fates.left.len() > 2900, "the line is never idle");
}

#[test]
fn red_marks_instead_of_dropping_early() {
    let run = |marks| {
        let line = Rate::bits_per_sec(12_000_000);
        let red = Red::new(RedParameters::default(), QueueLimit::Packets(1000), line, MTU, 1);
        let mut queue = FifoQueue::new(Box::new(red));
        let fates = through(&mut queue, &steady(600, 950, 1, marks), 600);
        (fates.dropped.len(), fates.left.iter().filter(|(_, packet)| packet.is_marked).count())
    };
    let ((dropped, unmarked), (none, marked)) = (run(false), run(true));
    assert!(dropped > 0 && unmarked == 0, "{dropped} dropped");
    assert!(none == 0 && marked > 0, "{none} dropped, {marked} marked");
}
