//! Measures one connection's delivery: its rate, and how large its receive window should be.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use longhaul_core::tune::receive_window::ReceiveWindowTuner;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::sockopt;
use longhaul_sys::tcp_info;

use crate::delivery_stall::DeliveryStall;

/// The shortest time over which a rate is measured; a shorter one would measure a single burst.
const SHORTEST_WINDOW: Duration = Duration::from_millis(20);

/// Counts one connection's bytes and derives its rate, stalls and receive window.
#[derive(Debug)]
pub struct DeliveryMeter {
    /// The bytes delivered so far.
    pub total: Bytes,
    /// The RTT of the empty path.
    pub rtt: Rtt,
    /// The rate over the last round trip.
    pub rate: Rate,
    /// The rate expected a round trip later.
    pub expected: Rate,
    /// The last RTT measured on data, queues included.
    data_rtt: Rtt,
    window: RateWindow,
    stall: DeliveryStall,
    /// When bytes arrived last.
    arrived: Instant,
    tuner: Option<ReceiveWindowTuner>,
    /// The clamp of the receive window, if it was ever clamped.
    window_clamp: Option<Bytes>,
}

/// The time over which a rate is measured.
#[derive(Debug)]
struct RateWindow {
    read: ByteCount,
    /// The bytes unread in the socket at the start.
    unread: Bytes,
    /// The longest pause between arrivals.
    pause: Duration,
}

/// Bytes counted since a point in time.
#[derive(Debug)]
struct ByteCount {
    since: Instant,
    bytes: Bytes,
}

impl ByteCount {
    fn now(now: Instant) -> Self {
        Self { since: now, bytes: Bytes::ZERO }
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

impl DeliveryMeter {
    /// Starts counting for a connection with this RTT; `hold` keeps its receive window near the
    /// BDP.
    pub fn new(rtt: Rtt, hold: bool, now: Instant) -> Self {
        Self {
            total: Bytes::ZERO,
            rtt,
            data_rtt: rtt,
            rate: Rate::default(),
            expected: Rate::default(),
            window: RateWindow { read: ByteCount::now(now), unread: Bytes::ZERO, pause: Duration::ZERO },
            stall: DeliveryStall::new(now),
            arrived: now,
            tuner: (hold && rtt.get() >= SHORTEST_WINDOW).then(ReceiveWindowTuner::default),
            window_clamp: None,
        }
    }

    /// Clamps the receive window from the first round trip on; `share` is this connection's part of
    /// the bytes in flight of several connections.
    #[must_use]
    pub fn of_several(mut self, share: Bytes) -> Self {
        if let Some(tuner) = &mut self.tuner {
            *tuner = ReceiveWindowTuner::of_several(share);
        }
        self
    }

    /// Counts bytes read from `socket`, and adjusts the socket's receive window once a round trip;
    /// `share` is this connection's part of the bytes in flight of several connections.
    pub fn add(&mut self, bytes: Bytes, share: Bytes, socket: impl AsFd, now: Instant) {
        self.total += bytes;
        self.window.read.bytes += bytes;
        self.stall.add(bytes);
        let pause = now.saturating_duration_since(self.arrived);
        if pause > self.window.pause {
            let unread = sockopt::unread(&socket).unwrap_or_default();
            self.note_pause(pause, bytes + unread);
        }
        self.arrived = now;
        let time = self.window.read.age(now);
        if time >= self.rtt.get().max(SHORTEST_WINDOW) {
            let unread = sockopt::unread(&socket).unwrap_or_default();
            let rate = Rate::over((self.window.read.bytes + unread) - self.window.unread, time);
            self.expected = rate.scaled(growth(self.rate, rate));
            self.rate = rate;
            if let Some(data_rtt) = tcp_info::read(&socket).ok().and_then(|info| info.rcv_rtt()) {
                self.data_rtt = data_rtt;
                self.hold(share, socket);
            }
            self.window = RateWindow { read: ByteCount::now(now), unread, pause: Duration::ZERO };
        }
    }

    /// Notes a pause after which `waiting` bytes were read or lie in the socket. It is the reader's
    /// if they are what arrives in that time.
    fn note_pause(&mut self, pause: Duration, waiting: Bytes) {
        if waiting * 2 < self.rate.bytes_in(pause) {
            self.window.pause = pause;
        }
    }

    /// Returns the RTT measured on data, queues included.
    pub fn data_rtt(&self) -> Rtt {
        self.data_rtt.max(self.rtt)
    }

    fn hold(&mut self, share: Bytes, socket: impl AsFd) {
        let Some(tuner) = self.tuner.as_mut() else { return };
        if let Some(clamp) = tuner.observe(self.rate, self.rtt, self.data_rtt, self.window.pause, share) {
            // Autotuning moves the clamp, so it is set each time. If that fails, the kernel's
            // window stays.
            let _ = sockopt::set_window_clamp(socket, clamp);
            self.window_clamp = Some(clamp);
        }
    }

    /// Returns the clamp of the receive window, if it was ever clamped.
    pub fn window_clamp(&self) -> Option<Bytes> {
        self.window_clamp
    }

    /// Excludes a time without reads of the socket from the stall time and from pauses.
    pub fn exclude(&mut self, time: Duration) {
        self.stall.exclude(time);
        self.arrived += time;
    }

    /// Returns whether the connection has stalled: less than 1 KiB arrived during the last
    /// `patience`.
    pub fn stalled(&mut self, patience: Duration, now: Instant) -> bool {
        self.stall.has_stalled(patience, now)
    }
}

/// Returns the growth of the rate within a round trip, between 1 and 2: slow start doubles it at
/// most.
fn growth(before: Rate, now: Rate) -> f64 {
    (now.as_bits_per_sec() as f64 / before.as_bits_per_sec().max(1) as f64).clamp(1.0, 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_the_senders_unless_what_arrives_in_it_waits() {
        let pause = Duration::from_millis(180);
        let is_counted = |mbit: u64, waiting| {
            let mut meter = DeliveryMeter::new(Rtt::default(), true, Instant::now());
            meter.rate = Rate::bits_per_sec(mbit * 1_000_000);
            meter.note_pause(pause, Bytes::new(waiting));
            meter.window.pause == pause
        };
        // At 80 Mbit/s 1.8 MB arrive in 180 ms; a burst arrives faster than it is read.
        let counted = [(80, 1448), (80, 200_000), (80, 1_700_000), (0, 1448)];
        assert_eq!(counted.map(|(mbit, waiting)| is_counted(mbit, waiting)), [true, true, false, false]);
    }
}
