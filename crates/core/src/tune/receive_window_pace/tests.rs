//! The edge in virtual time, with a sender that always uses the window.

use std::collections::VecDeque;

use super::*;

const GBIT: Rate = Rate::bits_per_sec(1_000_000_000);
const RTT: Duration = Duration::from_millis(302);
const OBSERVATION_INTERVAL: Duration = Duration::from_micros(250);
/// The second burst, the first that shows the rate: 14 observations at 1 Gbit/s. Its acknowledgements release twice its size.
const BURST: Bytes = Bytes::new(14 * 31_250);
/// The burst before, which confirms the rate.
const HALF_BURST: Bytes = Bytes::new(7 * 31_250);

/// A path, with a receiver that reads at once.
struct SimulatedPath {
    capacity: Rate,
    rtt: Duration,
    now: Duration,
    arrived: Bytes,
    out_of_order: u64,
    /// The bytes that the sender may send, and when the permission arrives.
    allowed: VecDeque<(Duration, Bytes)>,
    sent: Bytes,
    edge: Bytes,
    pacer: ReceiveWindowPacer,
    longest_queue: Duration,
}

impl SimulatedPath {
    /// Starts with a burst of half the size; the second burst starts an RTT later.
    fn new(capacity: Rate, rtt: Duration, limit: Option<Rate>) -> Self {
        Self {
            capacity,
            rtt,
            now: Duration::ZERO,
            arrived: Bytes::ZERO,
            out_of_order: 0,
            allowed: VecDeque::from([
                (Duration::ZERO, HALF_BURST),
                (rtt, HALF_BURST + BURST),
                (rtt * 2, HALF_BURST + BURST * 3),
            ]),
            sent: Bytes::ZERO,
            edge: HALF_BURST + BURST * 3,
            pacer: ReceiveWindowPacer::new(limit),
            longest_queue: Duration::ZERO,
        }
    }

    /// Advances by `time` and observes once.
    fn observe_after(&mut self, time: Duration) -> WindowStep {
        self.now += time;
        while let Some((_, bytes)) = self.allowed.pop_front_if(|(at, _)| *at <= self.now) {
            self.sent = self.sent.max(bytes);
        }
        // At the bottleneck's rate.
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

    /// Observes at intervals until `time`.
    fn run(&mut self, time: Duration) -> WindowStep {
        let mut step = WindowStep::Listen;
        while self.now < time {
            step = self.observe_after(OBSERVATION_INTERVAL);
        }
        step
    }

    /// Observes until the window is set, or pacing is off.
    fn first_step(&mut self) -> WindowStep {
        (0..4000)
            .map(|_| self.observe_after(OBSERVATION_INTERVAL))
            .find(|step| *step != WindowStep::Listen)
            .unwrap()
    }

    /// Returns the rate of arrival in the next RTT.
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
fn second_burst_sets_the_announced_window() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    let WindowStep::Hold(window) = path.first_step() else { panic!("{:?}", path.pacer) };
    assert!(path.now < RTT + Duration::from_millis(10), "{:?}", path.now);
    // The announced window stays the same.
    assert_eq!((path.arrived, window), (HALF_BURST + BURST, BURST * 2));
}

/// No observation is as late as such a burst is long.
#[test]
fn large_first_burst_sets_the_window() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    path.allowed = VecDeque::from([(Duration::ZERO, Bytes::mib(3))]);
    path.edge = Bytes::mib(9);
    assert!(matches!(path.first_step(), WindowStep::Hold(_)) && path.now < RTT, "{:?}", path.pacer);
}

#[test]
fn edge_advances_evenly_up_to_the_bottlenecks_rate() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    path.first_step();
    let mut reached = None;
    while path.now < seconds(20) {
        let before = path.edge;
        // Some observations are late.
        let late =
            if path.now.as_millis() % 500 < 2 { Duration::from_millis(50) } else { OBSERVATION_INTERVAL };
        path.observe_after(late);
        assert!(path.edge >= before, "the edge goes back at {:?}", path.now);
        let moved = path.edge - before;
        assert!(
            moved <= GBIT.bytes_in(late.min(MAX_CATCH_UP)),
            "the edge jumps by {moved} at {:?}",
            path.now
        );
        if reached.is_none() && path.edge - path.arrived >= GBIT.scaled(0.93).bytes_in(RTT) {
            reached = Some(path.now);
        }
    }
    // 2.5 RTTs of spreading, 7 at 1.6, 3 at 1.25, and the loss by late observations.
    assert!(reached.is_some_and(|at| at < seconds(6)), "{reached:?}");
}

#[test]
fn path_is_filled_without_a_long_queue() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
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
fn rate_never_exceeds_the_limit() {
    let limit = Rate::bits_per_sec(300_000_000);
    let mut path = SimulatedPath::new(GBIT, RTT, Some(limit));
    path.run(seconds(5));
    for _ in 0..30 {
        let goodput = path.goodput();
        assert!(goodput <= limit.scaled(1.01) && goodput >= limit.scaled(0.97), "{goodput}");
    }
}

#[test]
fn rate_is_cut_after_a_loss_and_grows_again() {
    for at in [2, 6] {
        let mut path = SimulatedPath::new(GBIT, RTT, None);
        assert!(matches!(path.run(seconds(at)), WindowStep::Hold(_)));
        let before = path.goodput();
        path.out_of_order += STRAY_SEGMENTS + 1;
        assert!(matches!(path.observe_after(OBSERVATION_INTERVAL), WindowStep::Hold(_)));
        // Data until the retransmission is out of order too, which is no further loss.
        path.out_of_order += 1000;
        path.run(seconds(at) + RTT * 5);
        let after = path.goodput();
        assert!(after < before.max(GBIT.scaled(0.9)), "{after} after {before}");
        path.run(seconds(at + 20));
        assert!(path.goodput() >= GBIT.scaled(0.93), "{:?}", path.pacer);
    }
}

#[test]
fn window_returns_to_the_kernel_when_retransmission_takes_too_long() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    path.run(seconds(2));
    path.out_of_order += STRAY_SEGMENTS + 1;
    path.observe_after(OBSERVATION_INTERVAL);
    // No further data arrives in order.
    path.capacity = Rate::default();
    assert!(matches!(path.run(path.now + RTT * MAX_RECOVERY_RTTS), WindowStep::Hold(_)));
    assert_eq!(path.observe_after(RTT), WindowStep::Off);
    // Permanently.
    assert_eq!(path.run(path.now + RTT), WindowStep::Off);
}

#[test]
fn window_returns_to_the_kernel_when_the_sender_does_not_use_it() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    path.run(seconds(1));
    // The window that losses to other flows leave.
    path.capacity = GBIT.scaled(0.05);
    let until = path.now + seconds(8);
    while path.now < until && path.observe_after(OBSERVATION_INTERVAL) != WindowStep::Off {
        path.allowed.iter_mut().for_each(|(_, bytes)| *bytes = (*bytes).min(path.arrived + Bytes::kib(900)));
    }
    assert!(path.now < until, "{:?}", path.pacer);
}

#[test]
fn sender_is_still_paced_after_a_pause() {
    let mut path = SimulatedPath::new(GBIT, MIN_RECEIVER_PACED_RTT * 2, None);
    path.run(seconds(1));
    for _ in 0..3 {
        path.capacity = Rate::default();
        path.run(path.now + Duration::from_millis(700));
        path.capacity = GBIT;
        assert!(matches!(path.run(path.now + seconds(2)), WindowStep::Hold(_)), "{:?}", path.pacer);
    }
}

#[test]
fn few_segments_out_of_order_do_not_cut_the_rate() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    path.run(seconds(2));
    for _ in 0..10 {
        path.out_of_order += STRAY_SEGMENTS;
        assert!(matches!(path.observe_after(OBSERVATION_INTERVAL), WindowStep::Hold(_)));
        path.goodput();
    }
}

#[test]
fn queue_lowers_the_rate() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    path.run(seconds(6));
    let WindowPacerPhase::Hold(edge) = &mut path.pacer.phase else { panic!("{:?}", path.pacer) };
    let before = edge.rate;
    let seen = ReceiverObservation {
        read: path.arrived,
        unread: Bytes::ZERO,
        offered: path.edge - path.arrived,
        rtt: Rtt::new(RTT),
        data_rtt: Rtt::new(RTT + NOTICEABLE_QUEUE * 2),
        out_of_order: 0,
    };
    for (after, share) in
        [(1, QUEUE_PACE_SHARE), (2, QUEUE_PACE_SHARE), (3, QUEUE_PACE_SHARE * QUEUE_PACE_SHARE)]
    {
        edge.review(&seen, path.now + RTT * after);
        let expected = before.scaled(share);
        assert!(edge.rate >= expected.scaled(0.999) && edge.rate <= expected, "{} after {before}", edge.rate);
    }
}

#[test]
fn short_and_fast_paths_are_not_paced() {
    let mut short = SimulatedPath::new(GBIT, Duration::from_millis(19), None);
    assert_eq!(short.first_step(), WindowStep::Off);
    // A longer burst: a shorter one could not be timed.
    let mut fast = SimulatedPath::new(Rate::bits_per_sec(4_000_000_000), RTT, None);
    fast.allowed = VecDeque::from([(Duration::ZERO, BURST * 10)]);
    assert_eq!(fast.first_step(), WindowStep::Off);
    let mut lossy = SimulatedPath::new(GBIT, RTT, None);
    lossy.out_of_order = STRAY_SEGMENTS + 1;
    assert_eq!(lossy.first_step(), WindowStep::Off);
}

#[test]
fn bursts_seen_late_do_not_set_the_rate() {
    let mut path = SimulatedPath::new(GBIT.scaled(100.0), RTT, None);
    path.allowed.clear();
    let (mut sent, mut piece) = (Bytes::ZERO, Bytes::new(4_820));
    for round in 0..7 {
        // Three observations over four milliseconds, for any size.
        for late in 0..3 {
            sent += piece;
            path.allowed.push_back((RTT * round + Duration::from_millis(2 * late), sent));
        }
        piece = piece * 2;
    }
    assert_eq!(path.run(RTT * 6), WindowStep::Listen);
}

#[test]
fn rate_grows_past_a_burst_that_was_far_too_slow() {
    let mut path = SimulatedPath::new(GBIT, RTT, None);
    path.run(seconds(3));
    let WindowPacerPhase::Hold(edge) = &mut path.pacer.phase else { panic!("{:?}", path.pacer) };
    edge.capacity = GBIT.scaled(0.1);
    edge.rate = edge.capacity.scaled(CAPACITY_SHARE);
    path.run(seconds(30));
    let reached = path.goodput();
    assert!(reached >= GBIT.scaled(0.9), "{reached}: {:?}", path.pacer);
}
