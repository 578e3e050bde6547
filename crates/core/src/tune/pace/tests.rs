//! The controller in virtual time, on a fluid path: what is in front of a bottleneck, and what comes out of it.

use std::collections::VecDeque;

use super::begin::ROOM;
use super::cut::least_pace;
use super::*;

const STEP: Duration = Duration::from_micros(250);
const MSS: f64 = 1448.0;

/// A sender in slow start, a bottleneck with a DropTail queue and background traffic, and a delay.
struct Path {
    capacity: f64,
    queue: f64,
    rtt: Duration,
    /// Others' rate from each moment on.
    others: Vec<(f64, f64)>,
    now: Duration,
    sent: f64,
    cwnd: f64,
    slow_start: bool,
    cut_until: Duration,
    /// Ours and theirs in the queue, in order.
    waiting: VecDeque<(f64, f64)>,
    /// When what passed arrives as acknowledged: bytes, and the RTT they saw.
    returning: VecDeque<(Duration, f64, Duration)>,
    /// When a loss is noticed.
    losses: VecDeque<(Duration, f64)>,
    acked: f64,
    in_flight: f64,
    lost: f64,
    others_sent: f64,
    others_lost: f64,
    srtt: Duration,
    /// By how much faster than what arrives the congestion control paces itself.
    own_pace: Option<f64>,
    arrives: f64,
    /// By how much the RTT sways without anybody's doing, within 2 s.
    sway: Duration,
}

impl Path {
    fn new(mbit: f64, rtt_ms: u64, queue: f64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self {
            capacity: mbit * 1e6 / 8.0,
            queue,
            rtt,
            others: vec![(0.0, 0.0)],
            now: Duration::ZERO,
            sent: 0.0,
            cwnd: 10.0 * MSS,
            slow_start: true,
            cut_until: Duration::ZERO,
            waiting: VecDeque::new(),
            returning: VecDeque::new(),
            losses: VecDeque::new(),
            acked: 0.0,
            in_flight: 0.0,
            lost: 0.0,
            others_sent: 0.0,
            others_lost: 0.0,
            srtt: rtt,
            own_pace: None,
            arrives: 0.0,
            sway: Duration::ZERO,
        }
    }

    fn with_others(mut self, shares: &[(f64, f64)]) -> Self {
        self.others = shares.iter().map(|&(at, share)| (at, share * self.capacity)).collect();
        self
    }

    fn step(&mut self, pace: Option<Rate>) {
        let dt = STEP.as_secs_f64();
        self.now += STEP;
        while self.returning.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((_, bytes, rtt)) = self.returning.pop_front() else { break };
            self.acked += bytes;
            self.in_flight -= bytes;
            self.srtt = self.srtt.mul_f64(0.7) + rtt.mul_f64(0.3);
            if self.slow_start && self.cwnd < 2.0 * self.in_flight.max(bytes) + 2.0 * bytes {
                self.cwnd += bytes;
            }
        }
        while self.losses.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, bytes)) = self.losses.pop_front() else { break };
            self.in_flight -= bytes;
            self.lost += bytes;
            if self.now >= self.cut_until {
                self.cwnd = (self.cwnd * 0.7).max(2.0 * MSS);
                self.slow_start = false;
                self.cut_until = self.now + self.rtt;
            }
        }
        let room = (self.cwnd - self.in_flight).max(0.0);
        let own = self.own_pace.map_or(room, |times| times * self.arrives * dt);
        let ours = pace.map_or(room, |pace| room.min(pace.as_bytes_per_sec() as f64 * dt)).min(own);
        let t = self.now.as_secs_f64();
        let theirs = self.others.iter().rev().find(|(at, _)| *at <= t).map_or(0.0, |(_, rate)| rate * dt);
        self.in_flight += ours;
        self.sent += ours;
        self.others_sent += theirs;
        // Served in order.
        let mut service = self.capacity * dt;
        let mut passed = 0.0;
        self.waiting.push_back((ours, theirs));
        while service > 0.0
            && let Some((a, b)) = self.waiting.pop_front()
        {
            let all = a + b;
            let share = if all > service { service / all } else { 1.0 };
            passed += a * share;
            service -= all * share;
            if share < 1.0 {
                self.waiting.push_front((a * (1.0 - share), b * (1.0 - share)));
                break;
            }
        }
        self.arrives += (passed - self.arrives * dt) / self.rtt.as_secs_f64();
        let backlog: f64 = self.waiting.iter().map(|(a, b)| a + b).sum();
        let over = backlog - self.queue;
        if over > 0.0
            && let Some((a, b)) = self.waiting.back_mut()
        {
            let share = (over / (*a + *b).max(1e-9)).min(1.0);
            self.others_lost += *b * share;
            if *a * share > 0.0 {
                self.losses.push_back((self.now + self.rtt, *a * share));
            }
            (*a, *b) = (*a * (1.0 - share), *b * (1.0 - share));
        }
        if passed > 0.0 {
            let sway = self.sway.mul_f64((self.now.as_secs_f64() * std::f64::consts::PI).sin().abs());
            let rtt = self.rtt + Duration::from_secs_f64(backlog.min(self.queue) / self.capacity) + sway;
            self.returning.push_back((self.now + self.rtt, passed, rtt));
        }
    }

    /// Holds what returns up for `time`, on its way back; it then comes within another tenth of that.
    fn hold_up(&mut self, time: Duration) {
        let until = self.now + time;
        for (at, _, rtt) in &mut self.returning {
            let held = (until + time / 10).saturating_sub(*at).mul_f64(10.0 / 11.0);
            (*at, *rtt) = (*at + held, *rtt + held);
        }
    }

    fn seen(&self) -> Observation {
        Observation {
            goodput: Bytes::new(self.acked as u64),
            window: Bytes::new(self.cwnd as u64),
            rtt: Rtt::new(self.srtt),
            min_rtt: Rtt::new(self.rtt),
            sent: Bytes::new(self.sent as u64),
            retransmits: Bytes::new(self.lost as u64),
        }
    }

    /// Runs until `seconds`; returns the goodput since the call over the bottleneck's rate.
    fn run(&mut self, pacer: &mut Option<Pacer>, seconds: f64) -> f64 {
        let (from, acked) = (self.now, self.acked);
        let (mut pace, mut due) = (None, self.now);
        while self.now.as_secs_f64() < seconds {
            if let Some(pacer) = pacer.as_mut().filter(|_| self.now >= due) {
                pace = pacer.observe(&self.seen(), self.now);
                self.slow_start |= pacer.is_held_back(&self.seen(), self.now);
                due = self.now + pacer.interval();
            }
            self.step(pace);
        }
        (self.acked - acked) / (self.now - from).as_secs_f64() / self.capacity
    }
}

#[test]
fn a_shallow_queue_is_filled_without_loss() {
    let mut path = Path::new(1000.0, 302, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 8.0);
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.93 && path.lost < 10.0 * MSS, "{share} of the path, {} segments lost", path.lost / MSS);
}

#[test]
fn what_the_congestion_control_did_not_send_proves_nothing() {
    for known in [500.0, 600.0, 700.0] {
        let mut path = Path::new(1000.0, 300, 1e6);
        let mut pacer = knowing(&mut path, known);
        path.run(&mut pacer, 1.0);
        path.own_pace = Some(1.25);
        path.run(&mut pacer, 12.0);
        let share = path.run(&mut pacer, 20.0);
        assert!(path.lost == 0.0 && share > 0.93, "{known} Mbit/s: {share}, lost {}", path.lost);
    }
}

#[test]
fn background_that_comes_and_goes_is_followed() {
    let steps = [(0.0, 0.0), (8.0, 0.2), (16.0, 0.5), (24.0, 0.2), (32.0, 0.0)];
    let mut path = Path::new(1000.0, 302, 1e6).with_others(&steps);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 8.0);
    let mut all = 0.0;
    for (from, others) in &steps[1..] {
        let share = path.run(&mut pacer, from + 8.0) / (1.0 - others);
        assert!(share > 0.85, "from {from} s on: {share} of what is left");
        all += share / 4.0;
    }
    assert!(all > 0.9, "{all} of what was left");
    let lost = path.others_lost / path.others_sent;
    assert!(lost < 0.01, "the others lost {lost}");
}

#[test]
fn a_train_that_told_too_little_or_too_much_costs_no_loss() {
    for told in [0.3, 0.55, 0.8, 0.93, 1.07, 1.15] {
        let mut path = Path::new(1000.0, 302, 1e6);
        let mut pacer = Some(Pacer::default());
        let mut until = 1.0;
        while matches!(pacer.as_ref().unwrap().phase, Phase::Listen { .. }) {
            until += 0.01;
            path.run(&mut pacer, until);
        }
        let wrong = Rate::bits_per_sec((told * 1e9) as u64);
        let begun = pacer.as_mut().unwrap();
        begun.capacity = Some(wrong);
        let Phase::Climb { most, .. } = &mut begun.phase else { panic!("{:?}", begun.phase) };
        *most = Some(wrong.scaled(ROOM));
        path.run(&mut pacer, 8.0);
        let share = path.run(&mut pacer, 16.0);
        assert!(
            share > 0.93 && path.lost == 0.0,
            "{told}: {share} of the path, {} segments lost",
            path.lost / MSS
        );
    }
}

#[test]
fn acknowledgements_that_are_held_up_are_no_queue() {
    let mut path = Path::new(1000.0, 302, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 10.0);
    path.hold_up(Duration::from_millis(40));
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.93 && path.lost == 0.0, "{share} of the path, {} segments lost", path.lost / MSS);
}

#[test]
fn what_left_next_to_nothing_is_made_use_of_when_it_has_gone() {
    for (rtt, others) in [(302, 0.9), (302, 0.97), (20, 0.9), (60, 0.97)] {
        let mut path = Path::new(1000.0, rtt, 1e6).with_others(&[(0.0, 0.0), (8.0, others), (16.0, 0.0)]);
        let mut pacer = Some(Pacer::default());
        path.run(&mut pacer, 16.0);
        let pace = pacer.as_ref().unwrap().found().map(|pace| pace.as_bits_per_sec() as f64 / 1e9);
        assert!(
            pace.is_none_or(|pace| pace < 1.3 * (1.0 - others) + 0.03),
            "{rtt} ms beside {others}: {pace:?}"
        );
        let lost = path.others_lost / path.others_sent;
        assert!(lost < 0.1, "{rtt} ms beside {others}: these lost {lost}");
        path.run(&mut pacer, 28.0);
        let share = path.run(&mut pacer, 34.0);
        assert!(share > 0.9, "{rtt} ms after {others}: {share}");
    }
}

#[test]
fn an_outage_of_a_path_that_a_train_told_is_recovered_from() {
    let mut path = Path::new(1000.0, 100, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 6.0);
    let capacity = std::mem::replace(&mut path.capacity, 1e5);
    path.run(&mut pacer, 8.0);
    path.capacity = capacity;
    path.run(&mut pacer, 20.0);
    let share = path.run(&mut pacer, 30.0);
    assert!(share > 0.9, "{share} of the path: {:?}", pacer.map(|pacer| (pacer.phase, pacer.capacity)));
}

#[test]
fn an_rtt_that_sways_without_a_queue_does_not_drive_the_pace_down() {
    for (rtt, sway) in [(302, 4), (600, 6), (100, 2), (40, 2)] {
        let mut path = Path::new(1000.0, rtt, 4e6);
        path.sway = Duration::from_millis(sway);
        let mut pacer = Some(Pacer::default());
        path.run(&mut pacer, 20.0);
        let share = path.run(&mut pacer, 60.0);
        assert!(share > 0.8, "{rtt} ms, {sway} ms more or less: {share} of the path");
    }
}

/// Begins with what the path is known to hold, and the window that goes with it.
fn knowing(path: &mut Path, mbit: f64) -> Option<Pacer> {
    let rate = Rate::bits_per_sec((mbit * 1e6) as u64);
    path.cwnd = first_pace(rate).bdp(Rtt::new(path.rtt)).get() as f64;
    Some(Pacer::knowing(rate))
}

#[test]
fn a_known_path_is_full_within_three_round_trips() {
    let mut path = Path::new(1000.0, 200, 1e6);
    let mut pacer = knowing(&mut path, 950.0);
    path.run(&mut pacer, 0.6);
    let share = path.run(&mut pacer, 2.0);
    assert!(share > 0.9 && path.lost == 0.0, "{share} of the path, {} lost", path.lost);
    // Listening takes longer: slow start from ten segments.
    let mut path = Path::new(1000.0, 200, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 0.6);
    let unknown = path.run(&mut pacer, 2.0);
    assert!(unknown < share * 0.7, "{unknown}");
    assert_eq!(Pacer::knowing(Rate::bits_per_sec(1)).found(), None, "nothing is found yet");
}

#[test]
fn what_is_found_is_what_the_path_holds() {
    let mut path = Path::new(1000.0, 200, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 8.0);
    let found = pacer.unwrap().found().unwrap().as_bits_per_sec() as f64 / 1e9;
    assert!((0.9..1.0).contains(&found), "{found}");
}

#[test]
fn a_path_that_has_become_narrow_is_left_at_once_and_followed() {
    for mbit in [600.0, 300.0, 100.0] {
        let mut path = Path::new(mbit, 200, 1e6);
        let mut pacer = knowing(&mut path, 950.0);
        path.run(&mut pacer, 1.5);
        // One round trip at half of what it held, and no more.
        let most = 950e6 / 8.0 / 2.0 * 0.45;
        assert!(path.lost < most, "{mbit} Mbit/s: {} lost", path.lost);
        let lost = path.lost;
        let share = path.run(&mut pacer, 12.0);
        assert!(share > 0.85, "{mbit} Mbit/s: {share} of the path");
        assert!(path.lost - lost < 0.1 * most, "{mbit} Mbit/s: {} lost later", path.lost - lost);
    }
}

#[test]
fn a_path_that_has_become_wide_is_found_too() {
    let mut path = Path::new(1000.0, 200, 1e6);
    let mut pacer = knowing(&mut path, 200.0);
    path.run(&mut pacer, 12.0);
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.9, "{share} of the path");
}

#[test]
fn a_pause_confirms_nothing() {
    let mut path = Path::new(1000.0, 200, 1e6);
    let mut pacer = Pacer::knowing(Rate::bits_per_sec(950_000_000));
    pacer.observe(&path.seen(), path.now);
    pacer.resume();
    // A clump of a few milliseconds, at more than the first pace.
    for _ in 0..20 {
        path.now += Duration::from_millis(1);
        path.acked += 1e6;
        assert_eq!(pacer.observe(&path.seen(), path.now), Some(Rate::bits_per_sec(475_000_000)));
    }
    assert!(matches!(pacer.phase, Phase::Trust { .. }));
}

#[test]
fn a_pause_beside_others_is_no_reason_to_crawl() {
    let mut path = Path::new(1000.0, 100, 12e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 4.0);
    let (from, since) = (Rate::bits_per_sec(300_000_000), Some(path.now));
    pacer.as_mut().unwrap().phase = Phase::Share { from, since };
    path.run(&mut pacer, 4.2);
    pacer.as_mut().unwrap().resume();
    path.now += Duration::from_secs(60);
    let mut least = f64::INFINITY;
    for _ in 0..300 {
        let until = path.now.as_secs_f64() + 0.01;
        path.run(&mut pacer, until);
        let pace = pacer.as_ref().unwrap().pace.map_or(f64::INFINITY, |pace| pace.as_bits_per_sec() as f64);
        least = least.min(pace);
    }
    assert!(least > 2e8, "{least} bit/s");
    // Nobody else is there: it is paced again.
    path.run(&mut pacer, 90.0);
    let phase = pacer.unwrap().phase;
    assert!(matches!(phase, Phase::Cruise { .. }), "{phase:?}");
}

#[test]
fn a_pause_is_no_climb() {
    let mut path = Path::new(1000.0, 200, 1e6);
    let mut pacer = knowing(&mut path, 950.0);
    let mut until = 0.0;
    while !matches!(pacer.as_ref().unwrap().phase, Phase::Climb { .. }) {
        until += 0.01;
        path.run(&mut pacer, until);
    }
    let pacer = pacer.as_mut().unwrap();
    let before = pacer.pace.unwrap();
    pacer.resume();
    path.now += Duration::from_secs(60);
    assert_eq!(pacer.observe(&path.seen(), path.now), Some(before));
}

#[test]
fn who_makes_no_use_of_a_known_rate_is_not_paced_for_ever() {
    let mut path = Path::new(1000.0, 200, 1e6);
    let mut pacer = knowing(&mut path, 950.0);
    // The receiver's window lets no more in.
    (path.cwnd, path.slow_start) = (65_536.0, false);
    for (until, off) in [(19.0, false), (21.0, true)] {
        path.run(&mut pacer, until);
        let pacer = pacer.as_ref().unwrap();
        assert_eq!((matches!(pacer.phase, Phase::Off), pacer.pace.is_none()), (off, off), "{until} s");
    }
}

#[test]
fn a_cut_leaves_less_however_thin_the_path_is() {
    let mut path = Path::new(4.0, 20, 20e3);
    let mut pacer = knowing(&mut path, 6.0);
    path.run(&mut pacer, 1.0);
    let (share, lost) = (path.run(&mut pacer, 10.0), path.lost);
    assert!(share > 0.9 && lost == 0.0, "{share} of the path, {lost} lost: {pacer:?}");
    // Ten segments a round trip would be 5.8 Mbit/s.
    let pace = pacer.unwrap().pace.unwrap();
    assert!(pace < Rate::bits_per_sec(4_500_000), "{pace}");
}

#[test]
fn a_fast_path_is_left_to_the_congestion_control_once_it_is_confirmed() {
    let mut path = Path::new(10_000.0, 100, 250e6);
    let mut pacer = knowing(&mut path, 9_000.0);
    path.run(&mut pacer, 0.5);
    let seen = path.seen();
    let pacer = pacer.as_mut().unwrap();
    assert_eq!(pacer.observe(&seen, path.now), None);
    assert!(pacer.has_settled(&seen));
}

#[test]
fn an_outage_that_leaves_nothing_leaves_a_pace() {
    let mut path = Path::new(100.0, 100, 1e6);
    let (capacity, queue) = (path.capacity, path.queue);
    let mut pacer = knowing(&mut path, 95.0);
    (path.capacity, path.queue) = (0.0, 0.0);
    // The first window is lost, the pace is cut, and a round trip and a half later nothing has arrived.
    path.run(&mut pacer, 0.3);
    assert!(path.lost > 0.0 && path.acked == 0.0);
    let pace = pacer.as_ref().and_then(|pacer| pacer.pace);
    assert_eq!(pace, Some(least_pace(&path.seen())));
    (path.capacity, path.queue) = (capacity, queue);
    path.run(&mut pacer, 20.0);
    let share = path.run(&mut pacer, 30.0);
    assert!(share > 0.9, "{share} of the path");
}

#[test]
fn a_rate_too_high_to_be_true_is_bounded_by_what_arrives() {
    let mut path = Path::new(100.0, 50, 1e6);
    let mut pacer = Some(Pacer::knowing(Rate::bits_per_sec(u64::MAX)));
    path.run(&mut pacer, 4.0);
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.9, "{share} of the path");
}

/// A path of which only the queue matters: others fill it, and it becomes no shorter when room is made.
struct Filled {
    pacer: Pacer,
    now: Duration,
    seen: Observation,
}

impl Filled {
    /// At 80 % of 1 Gbit/s over 100 ms, alone.
    fn new() -> Self {
        let rate = Rate::bits_per_sec(800_000_000);
        let rtt = Rtt::new(Duration::from_millis(100));
        let seen = Observation {
            goodput: Bytes::ZERO,
            window: Bytes::mib(20),
            rtt,
            min_rtt: rtt,
            sent: Bytes::ZERO,
            retransmits: Bytes::ZERO,
        };
        let mut pacer = Pacer { capacity: Some(Rate::bits_per_sec(1_000_000_000)), ..Pacer::default() };
        pacer.settle(rate, &seen, Duration::ZERO);
        let mut filled = Self { pacer, now: Duration::ZERO, seen };
        filled.run(1.0, |_| 0.0);
        assert!(matches!(filled.pacer.phase, Phase::Cruise { .. }), "{:?}", filled.pacer.phase);
        filled
    }

    /// Observes for so many seconds, or until it shares the path, where the queue is so many ms long; returns how long it took.
    fn run(&mut self, seconds: f64, queue: impl Fn(f64) -> f64) -> f64 {
        let from = self.now;
        let since = |now: Duration| (now - from).as_secs_f64();
        while since(self.now) < seconds && !matches!(self.pacer.phase, Phase::Share { .. }) {
            self.observe(queue(since(self.now)));
        }
        since(self.now)
    }

    fn observe(&mut self, queue: f64) {
        let step = Duration::from_millis(3);
        self.now += step;
        let pace = self.pacer.observe(&self.seen, self.now).unwrap();
        self.seen.goodput += pace.bdp(Rtt::new(step));
        self.seen.sent += pace.bdp(Rtt::new(step));
        self.seen.rtt = Rtt::new(self.seen.min_rtt.get() + Duration::from_secs_f64(queue / 1e3));
    }
}

#[test]
fn a_queue_that_sways_is_shared_as_soon_as_one_that_stands() {
    let stands = Filled::new().run(10.0, |_| 80.0);
    let sways = Filled::new().run(10.0, |t| 80.0 + 20.0 * (t * 10.0).sin());
    assert!(stands < 0.8 && sways < 1.2, "after {stands} and {sways} s");
}

#[test]
fn others_who_pause_are_made_no_room_again() {
    let mut filled = Filled::new();
    filled.run(10.0, |_| 80.0);
    while matches!(filled.pacer.phase, Phase::Share { .. }) && filled.now < Duration::from_secs(5) {
        filled.observe(0.0);
    }
    let Phase::Cruise { target, .. } = filled.pacer.phase else { panic!("{:?}", filled.pacer.phase) };
    filled.run(0.5, |_| 0.0);
    let again = filled.run(10.0, |_| 80.0);
    assert!(again < 0.1, "after {again} s");
    let pace = filled.pacer.pace.unwrap();
    assert!(pace >= target.scaled(0.9), "{pace} after {target}");
}
