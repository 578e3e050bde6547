//! The congestion window of a connection: slow start (RFC 5681), then Reno or CUBIC (RFC 9438).

use std::time::Duration;

use crate::model::{Time, cubic};

/// The congestion control of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionAlgorithm {
    /// Additive increase of one packet per RTT, halved on loss (RFC 5681), as in simulations of the 2000s.
    #[default]
    Reno,
    /// Cubic growth, reduced to 0.7 on loss (RFC 9438), as in Linux, but without HyStart: slow start ends with a loss.
    Cubic,
}

const MIN_CWND_PACKETS: f64 = 2.0;

/// The congestion window in packets.
#[derive(Debug)]
pub(super) struct CongestionWindow {
    algorithm: CongestionAlgorithm,
    initial: f64,
    /// Maximum window: the peer's socket buffer.
    most: f64,
    window: f64,
    /// Slow start threshold.
    threshold: f64,
    cubic: Cubic,
}

/// CUBIC's state.
#[derive(Debug, Default)]
struct Cubic {
    /// The window before the last loss.
    before: f64,
    /// Start of the growth after the loss, and the window at that time.
    begun: Option<(Time, f64)>,
    /// The window of Reno with equal losses (RFC 9438, 4.3).
    reno: f64,
}

impl CongestionWindow {
    /// Creates the window of a new connection: `initial` packets, at most `most`.
    pub(super) fn new(algorithm: CongestionAlgorithm, initial: u64, most: u64) -> Self {
        let (initial, most) = (initial.min(most) as f64, most as f64);
        Self { algorithm, initial, most, window: initial, threshold: f64::INFINITY, cubic: Cubic::default() }
    }

    /// Returns whether the window allows another packet in flight.
    pub(super) fn allows(&self, in_flight: usize) -> bool {
        (in_flight + 1) as f64 <= self.window
    }

    /// Grows the window for a packet acknowledged at `now` with `in_flight` packets, unless the sender is limited otherwise.
    pub(super) fn acknowledged(&mut self, now: Time, rtt: Duration, in_flight: usize) {
        if self.allows(in_flight) {
            return;
        }
        let grown = match self.algorithm {
            _ if self.window < self.threshold => self.window + 1.0,
            CongestionAlgorithm::Reno => self.window + 1.0 / self.window,
            CongestionAlgorithm::Cubic => self.cubic.grown(self.window, now, rtt),
        };
        self.window = grown.min(self.most);
    }

    /// Reduces the window after a loss.
    pub(super) fn lost(&mut self) {
        self.threshold = (self.window * self.cut()).max(MIN_CWND_PACKETS);
        self.window = self.threshold;
    }

    /// Resets the window after a timeout with `in_flight` packets; only the first of consecutive timeouts lowers the
    /// threshold (RFC 5681, 3.1).
    pub(super) fn timed_out(&mut self, in_flight: usize, is_first: bool) {
        if is_first {
            self.threshold = (self.window.min(in_flight as f64) * self.cut()).max(MIN_CWND_PACKETS);
        }
        self.window = 1.0;
    }

    /// Resets the window after an idle time longer than the timeout (RFC 5681, 4.1); the threshold becomes at least
    /// three quarters of the old window (RFC 2861, 3).
    pub(super) fn paused(&mut self) {
        self.threshold = self.threshold.max(self.window * 0.75);
        self.window = self.window.min(self.initial);
        self.cubic.begun = None;
    }

    /// Returns the factor of a window reduction after a loss.
    fn cut(&mut self) -> f64 {
        match self.algorithm {
            CongestionAlgorithm::Reno => 0.5,
            CongestionAlgorithm::Cubic => {
                self.cubic.lost(self.window);
                cubic::BETA
            }
        }
    }
}

impl Cubic {
    fn grown(&mut self, window: f64, now: Time, rtt: Duration) -> f64 {
        let (begun, from) = *self.begun.get_or_insert((now, window));
        if begun == now {
            self.reno = window;
        }
        // Growth that gives Reno and CUBIC equal shares at equal loss, until the old window is regained (RFC 9438, 4.3).
        let pace =
            if self.reno < self.before { 3.0 * (1.0 - cubic::BETA) / (1.0 + cubic::BETA) } else { 1.0 };
        self.reno += pace / window;
        let before = self.before.max(from);
        let target = cubic::window(before, from, (now.since(begun) + rtt).as_secs_f64());
        let cubic = window + (target.clamp(window, 1.5 * window) - window) / window;
        cubic.max(self.reno)
    }

    fn lost(&mut self, window: f64) {
        // Fast convergence: a flow below its old window yields to new flows (RFC 9438, section 4.7).
        let shrinks = window < self.before;
        self.before = if shrinks { window * (1.0 + cubic::BETA) / 2.0 } else { window };
        self.begun = None;
    }
}
