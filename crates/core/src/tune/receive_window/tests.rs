//! Connections through a bottleneck in steps of a millisecond, and the rules of the clamp.

use std::collections::VecDeque;

use super::*;
use crate::buffer_plan::window_ceiling;

const RTT: Rtt = Rtt::new(Duration::from_millis(200));
/// 1 Gbit/s.
const BYTES_PER_MS: u64 = 125_000;

/// What a sender's program sends.
#[derive(Debug, Clone, Copy)]
enum Sending {
    Always,
    /// So many kB at the begin of each period of so many ms, as servers with a limit do.
    Ticks(u64, u64),
    /// So many kB, then a pause of so many ms.
    Pauses(u64, u64),
}

/// A bottleneck whose queue never overflows.
#[derive(Debug, Clone, Copy)]
struct Path {
    sending: Sending,
    rtt: u64,
    /// Acknowledgements arrive at multiples of this time.
    bunch: u64,
    /// Connections that may be clamped, and those of other programs.
    own: usize,
    others: usize,
    /// Bytes per ms until 2 s, and from then on.
    capacity: [u64; 2],
}

/// A sender and its receiver. Times are in ms.
#[derive(Default)]
struct Connection {
    /// What the program has given to the sender, and when it goes on.
    given: u64,
    resumes: u64,
    sent: u64,
    acked: u64,
    congestion_window: u64,
    window_end: u64,
    /// When the latest acknowledgement was sent, which data echo.
    echo: u64,
    /// When they arrive and were sent, what was received, and the end of the window.
    acknowledgements: VecDeque<(u64, u64, u64, u64)>,
    received: u64,
    arrived: u64,
    pause: u64,
    data_rtt: f64,
    measured_echo: u64,
    /// The begin of the present round trip, and what had been received.
    begun: (u64, u64),
    rate: Rate,
    tuner: ReceiveWindowTuner,
    clamp: Option<Bytes>,
    /// What autotuning permits.
    window: u64,
}

impl Path {
    /// Returns the bytes that arrive over the own connections in 10 s, and the RTT of the data at
    /// the end, in RTTs.
    fn run(self, is_clamped: bool) -> (u64, f64) {
        let line = Bytes::new(10 * BYTES_PER_MS * self.rtt / self.own as u64);
        let several = ReceiveWindowTuner::of_several(line);
        let connection = |number| Connection {
            resumes: 7 * number,
            congestion_window: 14_480,
            window: 65_536,
            window_end: 65_536,
            // The first connection begins alone.
            tuner: if number == 0 { ReceiveWindowTuner::default() } else { several.clone() },
            ..Connection::default()
        };
        let all = self.own + self.others;
        let mut connections: Vec<_> = (0..all as u64).map(connection).collect();
        let (mut queue, mut highest) = (VecDeque::new(), Rate::default());
        for now in 1..10_000 {
            for (number, connection) in connections.iter_mut().enumerate() {
                let most = 4 * BYTES_PER_MS * self.rtt / all as u64;
                connection
                    .send(self.sending, most, now, |bytes, echo| queue.push_back((number, bytes, echo)));
            }
            let mut left = self.capacity[usize::from(now >= 2000)];
            while left > 0
                && let Some((number, waiting, echo)) = queue.front_mut()
            {
                let bytes = left.min(*waiting);
                (left, *waiting) = (left - bytes, *waiting - bytes);
                connections[*number].receive(bytes, *echo, now);
                if *waiting == 0 {
                    queue.pop_front();
                }
            }
            highest = highest.max(connections.iter().fold(Rate::default(), |sum, one| sum + one.rate));
            for (number, connection) in
                connections.iter_mut().enumerate().filter(|(_, one)| one.arrived == now)
            {
                let share = highest.bdp(Rtt::new(Duration::from_millis(self.rtt))).get() / self.own as u64;
                let share = if self.own == 1 { Bytes::ZERO } else { Bytes::new(share) };
                connection.acknowledge(&self, share, is_clamped && number < self.own, now);
            }
        }
        let received = connections[..self.own].iter().map(|connection| connection.received).sum();
        (received, connections[0].data_rtt / self.rtt as f64)
    }
}

impl Connection {
    fn send(&mut self, sending: Sending, most: u64, now: u64, mut pass: impl FnMut(u64, u64)) {
        loop {
            let ack = self.acknowledgements.pop_front_if(|(arrives, ..)| *arrives <= now);
            if let Some((_, sent, received, window_end)) = ack {
                self.congestion_window = (self.congestion_window + received - self.acked).min(most);
                (self.acked, self.echo, self.window_end) = (received, sent, window_end);
            }
            match sending {
                Sending::Always => self.given = u64::MAX,
                Sending::Ticks(kb, period) => self.given = ((now + self.resumes) / period + 1) * kb * 1000,
                Sending::Pauses(kb, _) if self.sent == self.given && now >= self.resumes => {
                    self.given += kb * 1000;
                }
                Sending::Pauses(..) => {}
            }
            let end = self.given.min(self.acked + self.congestion_window).min(self.window_end);
            if end > self.sent {
                pass(end - self.sent, self.echo);
                self.sent = end;
                if let Sending::Pauses(_, pause) = sending {
                    self.resumes = now + pause;
                }
            }
            if ack.is_none() {
                return;
            }
        }
    }

    fn receive(&mut self, bytes: u64, echo: u64, now: u64) {
        self.received += bytes;
        self.pause = self.pause.max(now - self.arrived);
        self.arrived = now;
        if echo != self.measured_echo {
            let sample = (now - echo) as f64;
            // Linux, tcp_rcv_rtt_update.
            self.data_rtt += (sample - self.data_rtt) / if self.measured_echo == 0 { 1.0 } else { 8.0 };
            self.measured_echo = echo;
        }
    }

    fn acknowledge(&mut self, path: &Path, share: Bytes, is_clamped: bool, now: u64) {
        let (ms, (begun, before)) = (Duration::from_millis, self.begun);
        if now - begun >= path.rtt && self.data_rtt > 0.0 {
            self.rate = Rate::over(Bytes::new(self.received - before), ms(now - begun));
            let data_rtt = Rtt::new(Duration::from_secs_f64(self.data_rtt / 1e3));
            let rtt = Rtt::new(ms(path.rtt));
            let clamp = self.tuner.observe(self.rate, rtt, data_rtt, ms(self.pause), share);
            self.clamp = clamp.filter(|_| is_clamped).or(self.clamp);
            self.window = self.window.max((self.received - before) * 4);
            (self.begun, self.pause) = ((now, self.received), 0);
        }
        // A window does not shrink.
        let shown = self.acknowledgements.back().map_or(self.window_end, |(.., end)| *end);
        let window = self.clamp.map_or(self.window, |clamp| self.window.min(clamp.get()));
        let window_end = shown.max(self.received + window);
        let arrives = (now + path.rtt).next_multiple_of(path.bunch);
        self.acknowledgements.push_back((arrives, now, self.received, window_end));
    }
}

#[test]
fn clamp_slows_no_sender_and_holds_one_that_fills_the_queue() {
    let always =
        Path { sending: Sending::Always, rtt: 0, bunch: 1, own: 1, others: 0, capacity: [BYTES_PER_MS; 2] };
    let sends = |sending| Path { sending, ..always };
    let paths = [
        sends(Sending::Pauses(2000, 150)),
        sends(Sending::Pauses(400, 50)),
        sends(Sending::Pauses(100, 10)),
        sends(Sending::Ticks(1000, 100)),
        sends(Sending::Ticks(5000, 100)),
        sends(Sending::Ticks(8000, 150)),
        sends(Sending::Ticks(2100, 200)),
        Path { bunch: 20, ..always },
        Path { others: 1, ..always },
        Path { capacity: [BYTES_PER_MS / 2, BYTES_PER_MS], ..always },
        Path { capacity: [BYTES_PER_MS, BYTES_PER_MS / 2], ..always },
        always,
    ];
    for path in paths {
        for rtt in [40, 100, 200] {
            for own in [1, 4, 16] {
                let path = Path { rtt, own, ..path };
                let [(free, _), (clamped, data_rtt)] = [false, true].map(|is_clamped| path.run(is_clamped));
                let ratio = clamped as f64 / free as f64;
                assert!(ratio > 0.98, "{path:?}: {ratio}");
                let fills = matches!(path.sending, Sending::Always) && path.bunch == 1 && path.others == 0;
                // A path that becomes slower has a clamp that lowers the rate, as far as the
                // receiver sees.
                let is_held = fills && own == 1 && path.capacity.is_sorted();
                assert!(!is_held || data_rtt < 1.35, "{path:?}: {data_rtt}");
            }
        }
    }
}

#[test]
fn clamp_opens_for_good_once_pauses_repeat() {
    let (rate, rtt) = (Rate::mbit(80), Rtt::new(Duration::from_millis(100)));
    let data_rtt = Rtt::new(Duration::from_millis(184));
    let mut tuner = ReceiveWindowTuner::default();
    let mut observe =
        |pause_ms| tuner.observe(rate, rtt, data_rtt, Duration::from_millis(pause_ms), Bytes::ZERO);
    assert_eq!((observe(4), observe(4)), (None, Some(MIN_CLAMP)));
    let opened = [observe(180), observe(4), observe(180), observe(4), observe(180), observe(4)];
    assert_eq!(opened.map(|clamp| clamp == Some(LARGEST_WINDOW)), [false, false, false, false, true, true]);
}

#[test]
fn clamp_below_the_bdp_grows_and_is_kept_while_unused() {
    let mut tuner = ReceiveWindowTuner::default();
    let (slow, noise) = (Rate::mbit(70), Rtt::new(Duration::from_millis(300)));
    tuner.observe(slow, RTT, RTT, Duration::ZERO, Bytes::ZERO);
    let mut clamp = tuner.observe(slow, RTT, noise, Duration::ZERO, Bytes::ZERO).unwrap();
    assert_eq!(clamp, Bytes::new(2_187_500));
    // Kept while the window is unused, or other flows queue.
    for (mbit, data_rtt_ms) in [(35, 200), (14, 600)] {
        let data_rtt = Rtt::new(Duration::from_millis(data_rtt_ms));
        let mut observe = || tuner.observe(Rate::mbit(mbit), RTT, data_rtt, Duration::ZERO, Bytes::ZERO);
        assert_eq!((0..50).filter_map(|_| observe()).last(), Some(clamp), "{mbit} Mbit/s");
    }
    for _ in 0..40 {
        clamp = tuner.observe(window_ceiling(clamp, RTT), RTT, RTT, Duration::ZERO, Bytes::ZERO).unwrap();
    }
    assert_eq!(clamp, LARGEST_WINDOW);
}

#[test]
fn one_of_several_connections_keeps_its_share_and_grows_when_its_rate_does() {
    let mut tuner = ReceiveWindowTuner::of_several(Bytes::mib(16));
    assert_eq!(tuner.clamp, Some(Bytes::mib(20)));
    tuner.observe(window_ceiling(Bytes::mib(20), RTT), RTT, RTT, Duration::ZERO, Bytes::ZERO);
    assert_eq!(tuner.clamp, Some(Bytes::mib(25)));
    assert_eq!(ReceiveWindowTuner::of_several(Bytes::ZERO).clamp, Some(MIN_CLAMP));
    let mut tuner = ReceiveWindowTuner::default();
    let (slow, crowded, share) = (Rate::mbit(70), Rtt::new(Duration::from_millis(600)), Bytes::mib(20));
    assert_eq!(tuner.observe(slow, RTT, RTT, Duration::ZERO, share), None);
    assert_eq!(tuner.observe(slow, RTT, crowded, Duration::ZERO, share), Some(Bytes::mib(25)));
    // Another connection has closed, and its share is free.
    assert_eq!(tuner.observe(slow, RTT, crowded, Duration::ZERO, share * 2), Some(Bytes::mib(50)));
}
