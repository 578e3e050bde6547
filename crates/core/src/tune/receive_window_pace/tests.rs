//! The edge in virtual time, over a sender that sends whatever the edge lets it.

use std::collections::VecDeque;

use super::*;

const GBIT: Rate = Rate::bits_per_sec(1_000_000_000);
const RTT: Duration = Duration::from_millis(302);
const LOOK: Duration = Duration::from_micros(250);
/// The second clump, the first that tells: as many looks at 1 Gbit/s. Its acknowledgements let out twice as much.
const CLUMP: Bytes = Bytes::new(14 * 31_250);
/// The one before, which proves it.
const HALF_CLUMP: Bytes = Bytes::new(7 * 31_250);

/// A path, and at its end a receiver who reads at once.
struct Path {
    capacity: Rate,
    rtt: Duration,
    now: Duration,
    arrived: Bytes,
    out_of_order: u64,
    /// What the sender may have sent, from when on that arrives.
    allowed: VecDeque<(Duration, Bytes)>,
    sent: Bytes,
    edge: Bytes,
    pacer: ReceiveWindowPacer,
    longest_queue: Duration,
}

impl Path {
    /// Begins with a clump of half the size; a round trip later the second one begins.
    fn new(capacity: Rate, rtt: Duration, limit: Option<Rate>) -> Self {
        Self {
            capacity,
            rtt,
            now: Duration::ZERO,
            arrived: Bytes::ZERO,
            out_of_order: 0,
            allowed: VecDeque::from([
                (Duration::ZERO, HALF_CLUMP),
                (rtt, HALF_CLUMP + CLUMP),
                (rtt * 2, HALF_CLUMP + CLUMP * 3),
            ]),
            sent: Bytes::ZERO,
            edge: HALF_CLUMP + CLUMP * 3,
            pacer: ReceiveWindowPacer::new(limit),
            longest_queue: Duration::ZERO,
        }
    }

    /// Goes on for `time` and looks once.
    fn look_after(&mut self, time: Duration) -> WindowStep {
        self.now += time;
        while let Some((_, bytes)) = self.allowed.pop_front_if(|(at, _)| *at <= self.now) {
            self.sent = self.sent.max(bytes);
        }
        // As fast as the bottleneck passes it on.
        self.arrived = (self.arrived + self.capacity.bytes_in(time)).min(self.sent);
        let queue = (self.sent - self.arrived).get() as f64 / self.capacity.as_bytes_per_sec().max(1) as f64;
        let queue = Duration::from_secs_f64(queue.min(1.0));
        if self.now > seconds(5) {
            self.longest_queue = self.longest_queue.max(queue);
        }
        let seen = ReceiverObservation {
            read: self.arrived,
            unread: Bytes::ZERO,
            offered: self.edge - self.arrived,
            rtt: Rtt::new(self.rtt),
            data_rtt: Rtt::new(self.rtt + queue),
            out_of_order: self.out_of_order,
        };
        let step = self.pacer.observe(&seen, self.now);
        if let WindowStep::Hold(window) = step {
            self.edge = self.arrived + window;
            self.allowed.push_back((self.now + self.rtt, self.edge));
        }
        step
    }

    /// Looks often until `time`.
    fn run(&mut self, time: Duration) -> WindowStep {
        let mut step = WindowStep::Listen;
        while self.now < time {
            step = self.look_after(LOOK);
        }
        step
    }

    /// Looks until the window is held, or never will be.
    fn first_answer(&mut self) -> WindowStep {
        (0..4000).map(|_| self.look_after(LOOK)).find(|step| *step != WindowStep::Listen).unwrap()
    }

    /// Returns at which rate data arrives in the next round trip.
    fn goodput(&mut self) -> Rate {
        let (from, arrived) = (self.now, self.arrived);
        self.run(from + self.rtt);
        Rate::over(self.arrived - arrived, self.now - from)
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_second_clump_is_enough_and_moves_nothing() {
    let mut path = Path::new(GBIT, RTT, None);
    let WindowStep::Hold(window) = path.first_answer() else { panic!("{:?}", path.pacer) };
    assert!(path.now < RTT + Duration::from_millis(10), "{:?}", path.now);
    // What was offered stays offered, no more and no less.
    assert_eq!((path.arrived, window), (HALF_CLUMP + CLUMP, CLUMP * 2));
}

/// Nobody is late by as much as such a clump takes.
#[test]
fn a_large_first_clump_is_enough() {
    let mut path = Path::new(GBIT, RTT, None);
    path.allowed = VecDeque::from([(Duration::ZERO, Bytes::mib(3))]);
    path.edge = Bytes::mib(9);
    assert!(matches!(path.first_answer(), WindowStep::Hold(_)) && path.now < RTT, "{:?}", path.pacer);
}

#[test]
fn the_edge_moves_evenly_up_to_the_bottlenecks_rate() {
    let mut path = Path::new(GBIT, RTT, None);
    path.first_answer();
    let mut reached = None;
    while path.now < seconds(20) {
        let before = path.edge;
        // Now and then whoever looks is late.
        let late = if path.now.as_millis() % 500 < 2 { Duration::from_millis(50) } else { LOOK };
        path.look_after(late);
        assert!(path.edge >= before, "the edge goes back at {:?}", path.now);
        let moved = path.edge - before;
        assert!(moved <= GBIT.bytes_in(late.min(LATE)), "the edge jumps by {moved} at {:?}", path.now);
        if reached.is_none() && path.edge - path.arrived >= GBIT.scaled(0.93).bytes_in(RTT) {
            reached = Some(path.now);
        }
    }
    // 2.5 round trips of drawing out, 7 at 1.6, 3 at 1.25, and what is lost by looking late.
    assert!(reached.is_some_and(|at| at < seconds(6)), "{reached:?}");
}

#[test]
fn a_path_is_filled_and_never_overfilled() {
    let mut path = Path::new(GBIT, RTT, None);
    path.run(seconds(5));
    let first = path.goodput();
    assert!(first >= GBIT.scaled(0.945), "{first} after 5 s");
    path.run(seconds(60));
    let last = path.goodput();
    assert!(last >= first && last <= GBIT, "{last} after a minute");
    assert!(path.longest_queue < Duration::from_millis(8), "{:?}", path.longest_queue);
    assert!(path.edge - path.arrived <= GBIT.bytes_in(RTT), "more than the path holds");
}

#[test]
fn a_limit_is_kept() {
    let limit = Rate::bits_per_sec(300_000_000);
    let mut path = Path::new(GBIT, RTT, Some(limit));
    path.run(seconds(5));
    for _ in 0..30 {
        let goodput = path.goodput();
        assert!(goodput <= limit.scaled(1.01) && goodput >= limit.scaled(0.97), "{goodput}");
    }
}

#[test]
fn after_a_loss_it_goes_on_more_slowly_and_grows_again() {
    for at in [2, 6] {
        let mut path = Path::new(GBIT, RTT, None);
        assert!(matches!(path.run(seconds(at)), WindowStep::Hold(_)));
        let before = path.goodput();
        path.out_of_order += FEW + 1;
        assert!(matches!(path.look_after(LOOK), WindowStep::Hold(_)));
        // What comes until the gap is filled is out of order too, and no further loss.
        path.out_of_order += 1000;
        path.run(seconds(at) + RTT * 5);
        let after = path.goodput();
        assert!(after < before.max(GBIT.scaled(0.9)), "{after} after {before}");
        path.run(seconds(at + 20));
        assert!(path.goodput() >= GBIT.scaled(0.93), "{:?}", path.pacer);
    }
}

#[test]
fn gaps_that_are_not_filled_leave_the_window_to_the_kernel() {
    let mut path = Path::new(GBIT, RTT, None);
    path.run(seconds(2));
    path.out_of_order += FEW + 1;
    path.look_after(LOOK);
    // Nothing more comes in order.
    path.capacity = Rate::default();
    assert!(matches!(path.run(path.now + RTT * PATIENCE), WindowStep::Hold(_)));
    assert_eq!(path.look_after(RTT), WindowStep::Off);
    // For good.
    assert_eq!(path.run(path.now + RTT), WindowStep::Off);
}

#[test]
fn a_sender_with_a_window_of_its_own_is_left_to_it() {
    let mut path = Path::new(GBIT, RTT, None);
    path.run(seconds(1));
    // As another's losses leave it.
    path.capacity = GBIT.scaled(0.05);
    let until = path.now + seconds(8);
    while path.now < until && path.look_after(LOOK) != WindowStep::Off {
        path.allowed.iter_mut().for_each(|(_, bytes)| *bytes = (*bytes).min(path.arrived + Bytes::kib(900)));
    }
    assert!(path.now < until, "{:?}", path.pacer);
}

#[test]
fn a_sender_that_pauses_is_paced_when_it_goes_on() {
    let mut path = Path::new(GBIT, SHORTEST * 2, None);
    path.run(seconds(1));
    for _ in 0..3 {
        path.capacity = Rate::default();
        path.run(path.now + Duration::from_millis(700));
        path.capacity = GBIT;
        assert!(matches!(path.run(path.now + seconds(2)), WindowStep::Hold(_)), "{:?}", path.pacer);
    }
}

#[test]
fn a_few_segments_out_of_order_are_an_accident() {
    let mut path = Path::new(GBIT, RTT, None);
    path.run(seconds(2));
    for _ in 0..10 {
        path.out_of_order += FEW;
        assert!(matches!(path.look_after(LOOK), WindowStep::Hold(_)));
        path.goodput();
    }
}

#[test]
fn a_queue_makes_it_slower() {
    let mut path = Path::new(GBIT, RTT, None);
    path.run(seconds(6));
    let Phase::Hold(edge) = &mut path.pacer.phase else { panic!("{:?}", path.pacer) };
    let before = edge.rate;
    let seen = ReceiverObservation {
        read: path.arrived,
        unread: Bytes::ZERO,
        offered: path.edge - path.arrived,
        rtt: Rtt::new(RTT),
        data_rtt: Rtt::new(RTT + QUEUE * 2),
        out_of_order: 0,
    };
    for (after, share) in [(1, HELD), (2, HELD), (3, HELD * HELD)] {
        edge.review(&seen, path.now + RTT * after);
        let expected = before.scaled(share);
        assert!(edge.rate >= expected.scaled(0.999) && edge.rate <= expected, "{} after {before}", edge.rate);
    }
}

#[test]
fn a_short_or_a_fast_path_is_none_for_it() {
    let mut short = Path::new(GBIT, Duration::from_millis(19), None);
    assert_eq!(short.first_answer(), WindowStep::Off);
    // A longer clump, or it would be over too soon to be timed.
    let mut fast = Path::new(Rate::bits_per_sec(4_000_000_000), RTT, None);
    fast.allowed = VecDeque::from([(Duration::ZERO, CLUMP * 10)]);
    assert_eq!(fast.first_answer(), WindowStep::Off);
    let mut lossy = Path::new(GBIT, RTT, None);
    lossy.out_of_order = FEW + 1;
    assert_eq!(lossy.first_answer(), WindowStep::Off);
}

#[test]
fn clumps_that_somebody_was_late_to_see_are_not_believed() {
    let mut path = Path::new(GBIT.scaled(100.0), RTT, None);
    path.allowed.clear();
    let (mut sent, mut piece) = (Bytes::ZERO, Bytes::new(4_820));
    for round in 0..7 {
        // In three pieces, over four milliseconds, however large.
        for late in 0..3 {
            sent += piece;
            path.allowed.push_back((RTT * round + Duration::from_millis(2 * late), sent));
        }
        piece = piece * 2;
    }
    assert_eq!(path.run(RTT * 6), WindowStep::Listen);
}

#[test]
fn a_rate_that_was_told_far_too_low_is_left_behind() {
    let mut path = Path::new(GBIT, RTT, None);
    path.run(seconds(3));
    let Phase::Hold(edge) = &mut path.pacer.phase else { panic!("{:?}", path.pacer) };
    edge.capacity = GBIT.scaled(0.1);
    edge.rate = edge.capacity.scaled(ROOM);
    path.run(seconds(30));
    let reached = path.goodput();
    assert!(reached >= GBIT.scaled(0.9), "{reached}: {:?}", path.pacer);
}
