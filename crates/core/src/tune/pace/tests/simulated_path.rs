//! A fluid model of a path: the queue of a bottleneck, and the acknowledgements that return.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::{Observation, Pacer};
use super::next_random;
use crate::units::{Bytes, Rate, Rtt};

const STEP: Duration = Duration::from_micros(250);
const MSS: f64 = 1448.0;

/// A sender under CUBIC, a bottleneck with a DropTail queue and background traffic, and a delay.
#[derive(Default)]
pub(super) struct SimulatedPath {
    pub(super) capacity: f64,
    pub(super) queue: f64,
    pub(super) rtt: Duration,
    /// The rate of other traffic from each time on.
    pub(super) others: Vec<(f64, f64)>,
    pub(super) now: Duration,
    sent: f64,
    cwnd: f64,
    pub(super) slow_start: bool,
    /// The window before it was cut, and when it was.
    cut: (f64, Duration),
    cut_until: Duration,
    /// Bytes of the sender and of other traffic in the queue, in order.
    waiting: VecDeque<(f64, f64)>,
    /// Acknowledgements in flight: arrival time, bytes, and their RTT.
    returning: VecDeque<(Duration, f64, Duration)>,
    /// When a loss is noticed.
    losses: VecDeque<(Duration, f64)>,
    pub(super) acked: f64,
    in_flight: f64,
    pub(super) lost: f64,
    srtt: Duration,
    /// Until when what is sent does not reach the bottleneck, and how much that is.
    held_back: (Duration, f64),
    /// The amplitude of an oscillation of the RTT with a period of 2 s.
    pub(super) sway: Duration,
    /// Maximum of a random addition to each observed RTT.
    pub(super) jitter: Duration,
    /// The largest window.
    pub(super) max_window: f64,
    random: u64,
}

impl SimulatedPath {
    pub(super) fn new(mbit: f64, rtt_ms: u64, queue: f64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self {
            capacity: mbit * 1e6 / 8.0,
            queue,
            rtt,
            srtt: rtt,
            others: vec![(0.0, 0.0)],
            cwnd: 10.0 * MSS,
            slow_start: true,
            max_window: f64::INFINITY,
            random: 1,
            ..Self::default()
        }
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
                self.cwnd = (self.cwnd + bytes).min(self.max_window);
            }
        }
        while self.losses.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, bytes)) = self.losses.pop_front() else { break };
            self.in_flight -= bytes;
            self.lost += bytes;
            if self.now >= self.cut_until {
                self.cut = (self.cwnd, self.now);
                self.cwnd = (self.cwnd * 0.7).max(2.0 * MSS);
                self.slow_start = false;
                self.cut_until = self.now + self.rtt;
            }
        }
        if !self.slow_start && self.cwnd < 2.0 * self.in_flight {
            self.cwnd = self.cwnd.max(self.cubic_window()).min(self.max_window);
        }
        let room = (self.cwnd - self.in_flight).max(0.0);
        let ours = pace.map_or(room, |pace| room.min(pace.as_bytes_per_sec() as f64 * dt));
        let t = self.now.as_secs_f64();
        let theirs = self.others.iter().rev().find(|(at, _)| *at <= t).map_or(0.0, |(_, rate)| rate * dt);
        self.in_flight += ours;
        self.sent += ours;
        // First in, first out.
        let mut service = self.capacity * dt;
        let mut passed = 0.0;
        self.held_back.1 += ours;
        let enters = if self.now < self.held_back.0 { 0.0 } else { std::mem::take(&mut self.held_back.1) };
        self.waiting.push_back((enters, theirs));
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
        let backlog: f64 = self.waiting.iter().map(|(a, b)| a + b).sum();
        let over = backlog - self.queue;
        if over > 0.0
            && let Some((a, b)) = self.waiting.back_mut()
        {
            let share = (over / (*a + *b).max(1e-9)).min(1.0);
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

    /// CUBIC's window (RFC 9438, section 4.2).
    fn cubic_window(&self) -> f64 {
        let (before, at) = (self.cut.0 / MSS, (self.now - self.cut.1).as_secs_f64());
        let k = (before * 0.3 / 0.4).cbrt();
        (0.4 * (at - k).powi(3) + before) * MSS
    }

    /// Delays the returning acknowledgements by `time`; they then arrive within another tenth of
    /// that.
    pub(super) fn hold_up(&mut self, time: Duration) {
        let until = self.now + time;
        for (at, _, rtt) in &mut self.returning {
            let held = (until + time / 10).saturating_sub(*at).mul_f64(10.0 / 11.0);
            (*at, *rtt) = (*at + held, *rtt + held);
        }
    }

    /// Holds back for `time` what is sent; it then reaches the bottleneck at once.
    pub(super) fn hold_back(&mut self, time: Duration) {
        self.held_back.0 = self.now + time;
    }

    pub(super) fn seen(&mut self) -> Observation {
        let jitter = self.jitter.mul_f64((next_random(&mut self.random) >> 40) as f64 / f64::from(1 << 24));
        Observation {
            goodput: Bytes::new(self.acked as u64),
            window: Bytes::new(self.cwnd as u64),
            rtt: Rtt::new(self.srtt + jitter),
            min_rtt: Rtt::new(self.rtt),
            sent: Bytes::new(self.sent as u64),
            lost: Bytes::new(self.lost as u64),
        }
    }

    /// Runs until `seconds`; returns the goodput since the call over the bottleneck's rate.
    pub(super) fn run(&mut self, pacer: &mut Option<Pacer>, seconds: f64) -> f64 {
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
