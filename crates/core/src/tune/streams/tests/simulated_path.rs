//! A path in simulated time: connections that share a bottleneck with a DropTail queue, modelled by
//! windows that grow and are reduced.
//!
//! Data in flight beyond the BDP is in the queue; data that does not fit is lost: the windows of
//! randomly chosen connections, weighted by their size, are reduced until it fits. Windows grow as
//! in slow start (left early if there is a queue, as in HyStart) and CUBIC (RFC 9438), up to the
//! limit of the sockets' buffers.

use std::time::Duration;

use super::super::{CountTuner, Interval, Remembered, StreamBound, StreamTuner, StreamTunerStart};
use super::red::Red;
use crate::tune::MAX_STREAMS;
use crate::units::{Bytes, Rate, Rtt};

const MSS: f64 = 1448.0;
/// CUBIC's constant C and its decrease factor (RFC 9438).
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// A generator of uniform random numbers (xorshift64*), equal in every run.
#[derive(Debug, Clone)]
pub(super) struct RandomNumbers(u64);

impl RandomNumbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn next(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A path. Times are in seconds, sizes in bytes, rates in bytes per second.
#[derive(Debug, Clone)]
pub(super) struct SimulatedPath {
    pub(super) capacity: f64,
    pub(super) rtt: f64,
    pub(super) buffer: f64,
    /// The largest number of bytes in flight of a connection: its socket buffers.
    pub(super) window: f64,
    /// The share of packets lost at random.
    pub(super) accidents: f64,
    /// RED, which drops before the queue is full.
    pub(super) red: Option<Red>,
    /// The relative noise of measurements.
    pub(super) noise: f64,
    /// The times from which other traffic leaves a share of the path, and the share.
    pub(super) left_by_others: Vec<(f64, f64)>,
    /// The largest number of connections accepted by the server.
    pub(super) server_takes: usize,
    /// The rate of the disk.
    pub(super) disk: f64,
    /// The rate that the CPU carries with one connection, and the share of it that each further
    /// connection costs.
    pub(super) cpu: (f64, f64),
    /// Whether the kernel counts the time that tasks wait for the CPU.
    pub(super) counts_pressure: bool,
    random: RandomNumbers,
    pub(super) now: f64,
}

#[derive(Debug, Clone, Default)]
struct Connection {
    opens: f64,
    window: f64,
    threshold: f64,
    before_cut: f64,
    cut: f64,
    /// The time after a loss at which CUBIC reaches the previous window (K).
    k: f64,
    /// The end of the retransmission timeout after the loss of the last packets.
    silent_until: f64,
    carried: bool,
}

/// A session: a tuner, or a fixed number of connections.
#[derive(Default)]
pub(super) struct SimulatedSession {
    pub(super) tuner: Option<StreamTuner>,
    begins: f64,
    connections: Vec<Connection>,
    pub(super) left: f64,
    pub(super) received: f64,
    /// The changes of the number of streams: time and number.
    pub(super) trace: Vec<(f64, usize)>,
    due: f64,
    interval: (f64, f64, f64, f64, bool),
    /// The time in this interval in which the CPU was the limit.
    pressed: f64,
}

impl SimulatedPath {
    pub(super) fn new(mbit: f64, rtt_ms: f64, buffer: f64, window: f64) -> Self {
        Self {
            capacity: mbit * 1e6 / 8.0,
            rtt: rtt_ms / 1e3,
            buffer,
            window,
            accidents: 0.0,
            red: None,
            noise: 0.02,
            left_by_others: Vec::new(),
            server_takes: usize::MAX,
            disk: f64::INFINITY,
            cpu: (f64::INFINITY, 0.0),
            counts_pressure: true,
            random: RandomNumbers::new(1),
            now: 0.0,
        }
    }

    /// Returns the path after `change`.
    pub(super) fn but(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn session(&self, begins: f64, left: f64) -> SimulatedSession {
        self.remembering(begins, left, None)
    }

    pub(super) fn remembering(&self, begins: f64, left: f64, path: Option<Remembered>) -> SimulatedSession {
        self.starting(begins, StreamTunerStart { remembered: path, ..self.start(left) })
    }

    /// Returns a sending session with a known window of its streams, on a line of 10 Gbit/s.
    pub(super) fn sending(&self, begins: f64, left: f64) -> SimulatedSession {
        let bound = Some(StreamBound { window: Bytes::new(self.window as u64), line: Rate::mbit(10_000) });
        self.starting(begins, StreamTunerStart { bound, ..self.start(left) })
    }

    fn start(&self, left: f64) -> StreamTunerStart {
        let (rtt, left) = (seconds_rtt(self.rtt), Bytes::new(left as u64));
        StreamTunerStart { rtt, left, most: MAX_STREAMS, remembered: None, bound: None }
    }

    fn starting(&self, begins: f64, start: StreamTunerStart) -> SimulatedSession {
        SimulatedSession::new(Some(StreamTuner::new(&start)), begins, start.left.get() as f64)
    }

    pub(super) fn seed(&mut self, seed: u64) {
        self.random = RandomNumbers::new(seed);
    }

    fn available(&self) -> f64 {
        let share =
            self.left_by_others.iter().rev().find(|(at, _)| *at <= self.now).map_or(1.0, |(_, share)| *share);
        self.capacity * share
    }

    /// Runs the sessions until `end`, or until all are complete.
    pub(super) fn run(&mut self, sessions: &mut [SimulatedSession], end: f64) {
        let step = (self.rtt / 8.0).clamp(0.002, 0.02);
        while self.now < end && sessions.iter().any(|s| s.left > 0.0) {
            self.now += step;
            self.pass(sessions, step);
            for session in sessions.iter_mut() {
                if session.begins <= self.now && session.left > 0.0 {
                    session.tick(self);
                }
            }
        }
    }

    fn pass(&mut self, sessions: &mut [SimulatedSession], step: f64) {
        let (now, capacity, count) = (self.now, self.available(), sessions.len());
        for session in sessions.iter_mut().filter(|s| s.left <= 0.0) {
            session.connections.clear();
        }
        let mut open: Vec<_> = sessions
            .iter_mut()
            .enumerate()
            .flat_map(|(i, s)| s.connections.iter_mut().map(move |c| (i, c)))
            .filter(|(_, c)| c.opens <= now && c.silent_until <= now)
            .collect();
        let bdp = capacity * self.rtt;
        let mut in_flight: f64 = open.iter().map(|(_, c)| c.window).sum();
        let mut out_of_order = vec![0.0; count];
        // DropTail: randomly chosen connections lose packets, weighted by their windows.
        while in_flight > bdp + self.buffer {
            let mut position = self.random.next() * in_flight;
            let hit = open.iter_mut().find(|(_, c)| {
                position -= c.window;
                position <= 0.0
            });
            let Some((i, connection)) = hit.filter(|(_, c)| c.window > MSS) else { break };
            out_of_order[*i] += connection.window / MSS;
            in_flight -= connection.window;
            connection.lose(now);
            in_flight += connection.window;
        }
        let queue = (in_flight - bdp).max(0.0);
        let round_trip = self.rtt + queue / capacity;
        let rate = in_flight / round_trip;
        let early = self.red.as_mut().map_or(0.0, |red| red.follow(queue, rate * step));
        let mut arrived = vec![0.0; count];
        for (i, connection) in &mut open {
            let bytes = connection.window / round_trip * step;
            arrived[*i] += bytes;
            connection.carried = true;
            // All drops within an RTT are one congestion event.
            let early = if now > connection.cut + round_trip { early } else { 0.0 };
            let dropped = self.accidents + early;
            if dropped > 0.0 && self.random.next() < dropped * bytes / MSS {
                out_of_order[*i] += connection.window / MSS;
                connection.lose(now);
            } else {
                let queue_shows = queue / capacity > (self.rtt / 8.0).clamp(0.004, 0.016);
                connection.grow(bytes, now, round_trip, queue_shows);
                connection.window = connection.window.min(self.window);
            }
        }
        debug_assert!(rate <= capacity * 1.001);
        drop(open);
        for (i, session) in sessions.iter_mut().enumerate() {
            let network = arrived[i];
            let (most, costs) = self.cpu;
            let cpu = most * (1.0 - costs * session.connections.len() as f64).max(0.1);
            let bytes = network.min(self.disk * step).min(cpu * step).min(session.left);
            if network > cpu * step {
                session.pressed += step;
            }
            session.left -= bytes;
            session.received += bytes;
            let seen = &mut session.interval;
            seen.0 += bytes;
            seen.1 += queue / capacity * step;
            seen.2 += step;
            seen.3 += out_of_order[i];
            seen.4 |= network > self.disk * step;
        }
    }

    fn measured(&mut self, value: f64) -> f64 {
        // The sum of four uniform numbers approximates a normal one: mean 0, deviation 1.
        let normal = (0..4).map(|_| self.random.next()).sum::<f64>() * 3f64.sqrt() - 2.0 * 3f64.sqrt();
        (value * (1.0 + self.noise * normal)).max(0.0)
    }
}

impl Connection {
    fn new(opens: f64) -> Self {
        Self { opens, window: 10.0 * MSS, threshold: f64::INFINITY, ..Self::default() }
    }

    fn lose(&mut self, now: f64) {
        if self.window < 4.0 * MSS {
            // Too few packets follow for a fast retransmit.
            self.silent_until = now + 0.3;
        }
        self.before_cut = self.window;
        self.k = (self.window / MSS * (1.0 - BETA) / C).cbrt();
        self.window = (self.window * BETA).max(MSS);
        self.threshold = self.window;
        self.cut = now;
    }

    fn grow(&mut self, acked: f64, now: f64, round_trip: f64, queue_shows: bool) {
        if self.window < self.threshold {
            self.window += acked;
            if queue_shows {
                (self.threshold, self.before_cut, self.cut, self.k) = (self.window, self.window, now, 0.0);
            }
            return;
        }
        let elapsed = now - self.cut;
        let cubic = C * (elapsed - self.k).powi(3) + self.before_cut / MSS;
        let friendly = self.threshold / MSS + 3.0 * (1.0 - BETA) / (1.0 + BETA) * elapsed / round_trip;
        self.window = self.window.max(MSS * cubic.max(friendly).min(1.5 * self.window / MSS));
    }
}

impl SimulatedSession {
    fn new(tuner: Option<StreamTuner>, begins: f64, left: f64) -> Self {
        Self { tuner, begins, left, due: begins, ..Self::default() }
    }

    /// Creates a session with a fixed number of connections.
    pub(super) fn fixed(streams: usize, begins: f64, left: f64) -> Self {
        Self { trace: vec![(begins, streams)], ..Self::new(None, begins, left) }
    }

    pub(super) fn streams(&self) -> usize {
        self.trace.last().map_or(0, |(_, streams)| *streams)
    }

    /// Returns the number of changes after `since`.
    pub(super) fn changes(&self, since: f64) -> usize {
        self.trace.iter().filter(|(at, _)| *at > since).count()
    }

    /// Returns the number of streams at a time.
    pub(super) fn streams_at(&self, at: f64) -> usize {
        self.trace.iter().rev().find(|(from, _)| *from <= at).map_or(0, |(_, streams)| *streams)
    }

    /// Returns the largest number of streams from a time on.
    pub(super) fn most_streams(&self, since: f64) -> usize {
        let later = self.trace.iter().filter(|(at, _)| *at > since).map(|(_, streams)| *streams);
        later.max().unwrap_or(0).max(self.streams_at(since))
    }

    fn tick(&mut self, path: &mut SimulatedPath) {
        let now = path.now;
        if now >= self.due {
            if self.due > self.begins {
                self.observe(path);
            }
            self.due = now + path.rtt.max(0.1);
            let wanted = self.tuner.as_ref().map_or(self.streams(), StreamTuner::streams);
            if self.streams() != wanted {
                self.trace.push((now, wanted));
            }
        }
        let wanted = self.streams();
        if let Some(tuner) = self.tuner.as_mut().filter(|_| wanted > path.server_takes) {
            tuner.refused(path.server_takes, None, Duration::from_secs_f64(now));
        }
        // The slowest connections close.
        self.connections.sort_by(|a, b| b.window.total_cmp(&a.window));
        self.connections.truncate(wanted);
        while self.connections.len() < wanted.min(path.server_takes) {
            // The first stream connects and sends a request; further streams wait for its response.
            let first = if self.connections.is_empty() { 2.0 } else { 3.0 };
            self.connections.push(Connection::new(now + first * path.rtt));
        }
    }

    fn observe(&mut self, path: &mut SimulatedPath) {
        let (bytes, waited, time, out_of_order, held_back) = std::mem::take(&mut self.interval);
        let pressed = std::mem::take(&mut self.pressed);
        let wait = path.measured(waited / time);
        let rate = path.measured(bytes / time);
        let seen = Interval {
            goodput: Rate::bytes_per_sec(rate as u64),
            rtt: seconds_rtt(path.rtt),
            data_rtt: Some(seconds_rtt(path.rtt + wait)),
            streams: self.connections.iter().filter(|c| c.carried).count(),
            out_of_order: out_of_order as u64,
            left: Bytes::new(self.left as u64),
            held_back,
            pressure: if path.counts_pressure { pressed / time } else { 0.0 },
        };
        self.connections.iter_mut().for_each(|c| c.carried = false);
        if let Some(tuner) = &mut self.tuner {
            tuner.observe(&seen, Duration::from_secs_f64(path.now));
        }
    }
}

fn seconds_rtt(seconds: f64) -> Rtt {
    Rtt::new(Duration::from_secs_f64(seconds))
}
